//! One page-table entry and its lock-free protocol: claim, validate, then publish or withdraw.
//!
//! An operation that changes an entry under a live mapping first *claims* it, by compare-and-swap from the
//! value that its decision was based on. After a full fence, it validates everything else that the decision
//! was based on. Then it publishes a new value or withdraws.
//!
//! A writer may change validated state (a mapping, a table link) without changing the entry. It stores the
//! change, fences, then reads the entries and waits for claims (rule R1). Together with the claimer's fence:
//! either the claimer sees the change, or the writer sees the claim.
//!
//! Hardware sets accessed and dirty bits in present entries at any moment, so a plain store never overwrites
//! a present entry (rule R8).

use core::marker::PhantomData;

use faultless_sync::atomic::{AtomicU64, Ordering};
use faultless_sync::{Cpu, Mutant, fence_after_rmw, mutant};

use crate::format::EntryFormat;

/// The value of an entry, read once.
pub type Value = u64;

/// A page-table entry in memory.
#[repr(transparent)]
#[derive(Debug)]
pub struct Entry(AtomicU64);

impl Entry {
    /// Returns an empty entry.
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Loads the value. Acquire: pairs with the release of a publication, so that the table or page behind
    /// the entry is seen initialised.
    #[inline]
    pub fn load(&self) -> Value {
        self.0.load(Ordering::Acquire)
    }

    /// Loads the value without an order: after a full fence of this CPU, for validation, or before an acquire fence.
    #[inline]
    pub fn load_relaxed(&self) -> Value {
        self.0.load(Ordering::Relaxed)
    }

    /// Writes an entry that no other CPU can reach yet, or that only this CPU may write.
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

    /// Replaces `seen` by `new` in one step, without a claim. For writers in a range that admits no new
    /// claims; fails if hardware or a claim came first.
    #[inline]
    pub fn replace(&self, seen: Value, new: Value) -> Result<(), Value> {
        self.0
            .compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
    }

    /// Claims the entry, which must still hold `seen`, an unclaimed value. Until the publication, hardware
    /// does not use the entry; if `seen` was present, TLBs may still hold it.
    ///
    /// A full barrier: later loads happen after the claim is visible. Partner: the fence of rule R1 in a
    /// writer that changes a mapping or a table link.
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

    /// Releases a claim of a present entry that this CPU has kept ([`PresentClaim::keep`]). Release: what was
    /// done under the claim comes before the next claim of the entry.
    pub fn release_kept<F: EntryFormat>(&self) {
        // A read-modify-write, because hardware may have set bits meanwhile (rule R8).
        self.0.fetch_and(!F::FORMAT.claim, Ordering::AcqRel);
    }

    /// Claims an entry in place: hardware continues to use a present one. A full barrier, like
    /// [`Entry::claim`].
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

/// A claim that made its entry non-present. Dropping it withdraws the claim.
#[must_use]
pub struct Claim<'a, F: EntryFormat> {
    entry: &'a Entry,
    before: Value,
    _format: PhantomData<F>,
}

impl<F: EntryFormat> Claim<'_, F> {
    /// Returns the value before the claim.
    pub fn before(&self) -> Value {
        self.before
    }

    /// Publishes `value`. Release: a CPU that finds the entry also sees the page's content, map count and
    /// owner, which were written before.
    #[inline]
    pub fn publish(self, value: Value) {
        // Nothing else writes a claim that is not present, not even hardware.
        let order = if mutant(Mutant::PublishRelaxed) {
            Ordering::Relaxed
        } else {
            Ordering::Release
        };
        self.entry.0.store(value, order);
        core::mem::forget(self);
    }

    /// Leaves the claim in the entry, where its owner finds and resolves it after a flush ([`crate::free`],
    /// and DONTNEED in `faultless-mm`).
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
    /// Returns the value before the claim.
    pub fn before(&self) -> Value {
        self.before
    }

    /// Replaces the entry by `change` of its current value, including hardware's bits. Only these differ from
    /// one attempt to the next. Returns the value that was replaced, without the claim.
    #[inline]
    pub fn publish(self, change: impl Fn(Value) -> Value) -> Value {
        self.replace(change)
    }

    /// Leaves the claim in the entry and applies `change` to the other bits. [`Entry::release_kept`] releases
    /// it after a flush (rule R2). Hardware continues to use the entry. Returns the value that was replaced,
    /// without the claim.
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

    /// Makes the entry non-present and keeps the claim.
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
