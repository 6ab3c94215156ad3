//! One page-table entry, and the protocol on it.
//!
//! Whoever wants to change an entry under a live mapping *claims* it first, by
//! compare-and-swap from the value the decision was based on. Then, after a
//! full fence, it validates whatever else the decision was based on, and either
//! publishes a new value or withdraws.
//!
//! Writers that change validated state without changing the entry (a mapping,
//! a table link) write it, fence, then look at the entries and wait for claims
//! (rule R1). With the claimer's fence that gives: either the claimer sees the
//! change, or the writer sees the claim.
//!
//! Hardware sets accessed and dirty bits in present entries at any moment (rule
//! R8): a present entry is never overwritten by a plain store.

use core::marker::PhantomData;

use faultless_sync::atomic::{AtomicU64, Ordering};
use faultless_sync::{Cpu, Mutant, fence_after_rmw, mutant};

use crate::format::EntryFormat;

/// What an entry holds, read once.
pub type Value = u64;

/// A page-table entry in memory.
#[repr(transparent)]
#[derive(Debug)]
pub struct Entry(AtomicU64);

impl Entry {
    /// An empty entry.
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The value now. Acquire: pairs with the release of a publication, so that
    /// the table or page behind the entry is seen initialised.
    #[inline]
    pub fn load(&self) -> Value {
        self.0.load(Ordering::Acquire)
    }

    /// The value after this CPU's own full fence, for validation.
    #[inline]
    pub fn load_relaxed(&self) -> Value {
        self.0.load(Ordering::Relaxed)
    }

    /// Writes an entry that nobody else can reach yet, or that only this CPU may write.
    #[inline]
    pub fn set(&self, value: Value) {
        self.0.store(value, Ordering::Release);
    }

    /// Sets hardware's bits, as a table walk does. Fails if the entry changed.
    #[inline]
    pub fn touch(&self, seen: Value, bits: Value) -> Result<(), Value> {
        self.0
            .compare_exchange(seen, seen | bits, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
    }

    /// Replaces `seen` by `new` in one step, without a claim. For writers whose
    /// range admits no new claims; fails if hardware or a claim came first.
    #[inline]
    pub fn replace(&self, seen: Value, new: Value) -> Result<(), Value> {
        self.0
            .compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
    }

    /// Claims the entry: `seen` must still be there, and unclaimed. From here
    /// to the publication no hardware uses the entry; where `seen` was present,
    /// TLBs may still hold it.
    ///
    /// A full barrier: what is loaded afterwards is loaded after the claim is
    /// visible. Partner: the fence of rule R1 in whoever changes a mapping or a
    /// table link.
    #[inline]
    pub fn claim<F: EntryFormat>(&self, seen: Value, cpu: Cpu) -> Result<Claim<'_, F>, Value> {
        let claim = F::FORMAT.claim_of(seen, cpu);
        self.0
            .compare_exchange(seen, claim, Ordering::AcqRel, Ordering::Acquire)?;
        if !mutant(Mutant::ClaimWithoutFence) {
            fence_after_rmw();
        }
        Ok(Claim {
            entry: self,
            before: seen,
            _format: PhantomData,
        })
    }

    /// Gives back a claim of a present entry that this CPU has kept ([`PresentClaim::keep`]).
    /// Release: what was done under it comes before whoever claims the entry next.
    pub fn release_kept<F: EntryFormat>(&self) {
        // A read-modify-write, because hardware may have set bits meanwhile (rule R8).
        self.0.fetch_and(!F::FORMAT.claim, Ordering::AcqRel);
    }

    /// Claims an entry that has a page and leaves it what it is: a present one usable by
    /// hardware. The same barrier.
    #[inline]
    pub fn claim_present<F: EntryFormat>(&self, seen: Value) -> Result<PresentClaim<'_, F>, Value> {
        self.0.compare_exchange(
            seen,
            seen | F::FORMAT.claim,
            Ordering::AcqRel,
            Ordering::Acquire,
        )?;
        if !mutant(Mutant::ClaimWithoutFence) {
            fence_after_rmw();
        }
        Ok(PresentClaim {
            entry: self,
            before: seen,
            _format: PhantomData,
        })
    }
}

impl Default for Entry {
    fn default() -> Self {
        Self::new()
    }
}

/// An entry claimed as not present. Dropping it withdraws the claim.
#[must_use]
pub struct Claim<'a, F: EntryFormat> {
    entry: &'a Entry,
    before: Value,
    _format: PhantomData<F>,
}

impl<F: EntryFormat> Claim<'_, F> {
    /// What was there before.
    pub fn before(&self) -> Value {
        self.before
    }

    /// Puts `value` in place. Release: the page's content, map count and owner
    /// were written before and are seen by whoever finds the entry.
    #[inline]
    pub fn publish(self, value: Value) {
        // Nobody else writes a claim that is not present, hardware included.
        let order = if mutant(Mutant::PublishRelaxed) {
            Ordering::Relaxed
        } else {
            Ordering::Release
        };
        self.entry.0.store(value, order);
        core::mem::forget(self);
    }

    /// Leaves the claim in the entry, to be found and resolved by its owner
    /// after a flush ([`crate::free`], and DONTNEED in `faultless-mm`).
    pub fn keep(self) {
        core::mem::forget(self);
    }
}

impl<F: EntryFormat> Drop for Claim<'_, F> {
    fn drop(&mut self) {
        self.entry.0.swap(self.before, Ordering::AcqRel);
    }
}

/// A present entry claimed in place. Dropping it withdraws the claim.
#[must_use]
pub struct PresentClaim<'a, F: EntryFormat> {
    entry: &'a Entry,
    before: Value,
    _format: PhantomData<F>,
}

impl<'a, F: EntryFormat> PresentClaim<'a, F> {
    /// What was there before, without the claim.
    pub fn before(&self) -> Value {
        self.before
    }

    /// Replaces the entry by `change` of what it holds, hardware's bits
    /// included. Only those can differ from one attempt to the next. What it held to the last.
    #[inline]
    pub fn publish(self, change: impl Fn(Value) -> Value) -> Value {
        self.replace(change)
    }

    /// Leaves the claim in the entry, with what `change` makes of the rest, to be given back
    /// by [`Entry::release_kept`] after a flush (rule R2). Hardware goes on using it. What it
    /// held until then.
    #[inline]
    pub fn keep(self, change: impl Fn(Value) -> Value) -> Value {
        self.replace(|seen| change(seen) | F::FORMAT.claim)
    }

    #[inline]
    fn replace(self, change: impl Fn(Value) -> Value) -> Value {
        let before = self.before;
        let mut seen = before | F::FORMAT.claim;
        while let Err(now) = self.entry.0.compare_exchange(
            seen,
            change(seen & !F::FORMAT.claim),
            Ordering::AcqRel,
            Ordering::Relaxed,
        ) {
            seen = now;
        }
        core::mem::forget(self);
        if mutant(Mutant::HoldersOfFirstLook) {
            return before;
        }
        seen & !F::FORMAT.claim
    }

    /// Takes the entry from hardware while keeping the claim.
    pub fn hide(self, cpu: Cpu) -> Claim<'a, F> {
        let claim = F::FORMAT.claim_of(self.before, cpu);
        let before = self.entry.0.swap(claim, Ordering::AcqRel) & !F::FORMAT.claim;
        let entry = self.entry;
        core::mem::forget(self);
        Claim {
            entry,
            before,
            _format: PhantomData,
        }
    }
}

impl<F: EntryFormat> Drop for PresentClaim<'_, F> {
    fn drop(&mut self) {
        if mutant(Mutant::WithdrawByStore) {
            return self.entry.0.store(self.before, Ordering::Release);
        }
        // A read-modify-write, because hardware may have set bits meanwhile (rule R8).
        self.entry.0.fetch_and(!F::FORMAT.claim, Ordering::AcqRel);
    }
}
