//! The entry transaction: claim, validate, complete, publish or withdraw.
//!
//! Every change of an entry in a range that admits claims is one of these. A *transaction* keeps interrupts
//! off. It claims an entry from the value on which a decision was based, and validates the rest of that
//! decision's basis. Then it publishes or withdraws the claim.
//!
//! * The claim is a full barrier. Its partner is the fence of rule R1 in a writer that changes a mapping
//!   ([`crate::lock`]) or a table's link ([`faultless_paging::free`]). Either validation fails here, or that
//!   writer sees the claim and waits for it.
//! * A claim that is dropped is withdrawn.
//! * A transaction that claims several entries waits for no claim while it holds one (rule R9).
//!
//! *Writes*: the entry.
//!
//! *Models*: loom `fault/{engine,sharing,pin,guard}.rs`.

use faultless_paging::{Claim, Entry, Link, PresentClaim, Value};

use crate::base::machine::Machine;
use crate::table::Tables;
use crate::table::retry::Retry;
use crate::tree::Found;

/// The basis of a decision about an entry, to be checked again after a full fence.
pub(crate) trait Validate {
    /// Whether it is unchanged.
    fn is_valid(&self) -> bool;
}

impl Validate for Found<'_> {
    #[inline]
    fn is_valid(&self) -> bool {
        Found::is_valid(self)
    }
}

/// An entry that was looked up: its location, the value read, and its mapping.
pub(crate) struct PteRef<'s, V> {
    pub(crate) entry: &'s Entry,
    pub(crate) value: Value,
    pub(crate) link: Link<'s>,
    pub(crate) vma: &'s V,
}

impl<V: Validate> PteRef<'_, V> {
    /// Validates the decision's basis beside the entry: the mapping is the same and not changing, and the
    /// table is still linked where it was found.
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

/// A transaction. Interrupts are off until it is dropped; entries are claimed meanwhile.
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

    /// Claims an entry that holds `seen`, so that hardware no longer uses it, and then validates.
    ///
    /// # Errors
    /// The entry holds another value or is claimed, or `validate` fails. The entry is unchanged.
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

    /// Claims an entry with a page, which hardware still uses, and then validates.
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
    /// Runs a transaction on one entry: claims it from its value, validates, calls `complete`, and publishes
    /// the value that this returns. `complete` validates the identity of a page; it may fail only before it
    /// has had an effect.
    ///
    /// # Errors
    /// The reason for the withdrawal; the entry is unchanged.
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

    /// The same for an entry with a page, which hardware still uses. `complete` returns a function from the
    /// entry's value, with the bits that hardware has set meanwhile, to the new one.
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
