//! The entry transaction: claim, validate, complete, publish or withdraw.
//!
//! Every change of an entry in a range that admits claims is one of these. A *transaction* keeps
//! interrupts off; under it an entry is claimed from the value that a decision was based on, what the
//! decision was based on beside the entry is validated, and the claim is published or withdrawn.
//!
//! * The claim is a full barrier. Its partner is the fence of rule R1 in a writer that changes a mapping
//!   ([`crate::lock`]) or a table's link ([`faultless_paging::free`]): either validation fails here, or that
//!   writer sees the claim and waits for it.
//! * A claim that is dropped is withdrawn.
//! * A transaction that claims several entries waits for no claim while it has one (rule R9).
//!
//! *Writes*: the entry.

use faultless_paging::{Claim, Entry, Link, PresentClaim, Value};

use crate::base::machine::Machine;
use crate::table::Tables;
use crate::table::retry::Retry;
use crate::tree::Found;

/// What a decision about an entry was based on, found again after a full fence.
pub(crate) trait Validate {
    /// Whether it still is what it was.
    fn is_valid(&self) -> bool;
}

impl Validate for Found<'_> {
    #[inline]
    fn is_valid(&self) -> bool {
        Found::is_valid(self)
    }
}

/// An entry that was looked at: where it is, what it held, and the mapping that it belongs to.
pub(crate) struct PteRef<'s, V> {
    pub(crate) entry: &'s Entry,
    pub(crate) value: Value,
    pub(crate) link: Link<'s>,
    pub(crate) vma: &'s V,
}

impl<V: Validate> PteRef<'_, V> {
    /// What the decision was based on, beside the entry: the mapping is the same and not changing, and the
    /// table still hangs where it was found.
    #[inline]
    pub(crate) fn validate(&self) -> Result<(), Retry> {
        if !self.vma.is_valid() {
            return Err(Retry::MappingChanged);
        }
        if !self.link.is_valid() {
            return Err(Retry::TableChanged);
        }
        Ok(())
    }
}

/// Interrupts are off until this is dropped; entries are claimed meanwhile.
pub(crate) struct PteTxn<'a, M: Machine> {
    machine: &'a M,
    interrupts: bool,
}

impl<'a, M: Machine> PteTxn<'a, M> {
    /// Begins a transaction on this CPU.
    #[inline]
    pub(crate) fn begin(machine: &'a M) -> Self {
        let interrupts = machine.interrupts_off();
        Self {
            machine,
            interrupts,
        }
    }

    /// Claims an entry from `seen` so that hardware no longer uses it, if it then is valid.
    ///
    /// # Errors
    /// The entry holds something else or is claimed; or what `validate` says. It is what it was.
    #[inline]
    pub(crate) fn claim<'e>(
        &self,
        entry: &'e Entry,
        seen: Value,
        validate: impl FnOnce() -> Result<(), Retry>,
    ) -> Result<Claim<'e, M::Format>, Retry> {
        let claim = entry
            .claim::<M::Format>(seen, self.machine.cpu())
            .map_err(|_| Retry::EntryClaimed)?;
        validate()?;
        Ok(claim)
    }

    /// Claims an entry that has a page, which hardware goes on using, if it then is valid.
    ///
    /// # Errors
    /// As [`PteTxn::claim`].
    #[inline]
    pub(crate) fn claim_present<'e>(
        &self,
        entry: &'e Entry,
        seen: Value,
        validate: impl FnOnce() -> Result<(), Retry>,
    ) -> Result<PresentClaim<'e, M::Format>, Retry> {
        let claim = entry
            .claim_present::<M::Format>(seen)
            .map_err(|_| Retry::EntryClaimed)?;
        validate()?;
        Ok(claim)
    }
}

impl<M: Machine> Drop for PteTxn<'_, M> {
    #[inline]
    fn drop(&mut self) {
        self.machine.interrupts_restore(self.interrupts);
    }
}

impl<M: Machine> Tables<M> {
    /// One entry: claims it from what it held, validates, has `complete` do what it has to, and publishes
    /// what that returns. `complete` can still withdraw as long as it has done nothing; the identity of a page is
    /// validated there.
    ///
    /// # Errors
    /// Why it was withdrawn; the entry is what it was.
    #[inline]
    pub(crate) fn transact<V: Validate>(
        &self,
        at: &PteRef<'_, V>,
        complete: impl FnOnce() -> Result<Value, Retry>,
    ) -> Result<(), Retry> {
        let txn = PteTxn::begin(self.machine());
        let claim = txn.claim(at.entry, at.value, || at.validate())?;
        claim.publish(complete()?);
        Ok(())
    }

    /// The same of an entry with a page, which hardware goes on using: `complete` returns what is to be made of
    /// the entry, with the bits that hardware has set meanwhile.
    ///
    /// # Errors
    /// As [`Tables::transact`].
    #[inline]
    pub(crate) fn transact_present<V: Validate, C: Fn(Value) -> Value>(
        &self,
        at: &PteRef<'_, V>,
        complete: impl FnOnce() -> Result<C, Retry>,
    ) -> Result<(), Retry> {
        let txn = PteTxn::begin(self.machine());
        let claim = txn.claim_present(at.entry, at.value, || at.validate())?;
        claim.publish(complete()?);
        Ok(())
    }
}
