//! Guards of a [`RangeLock`]: of ranges that are held, and of ranges that are zapped or replacing.

use core::mem::ManuallyDrop;
use core::ops::Range;

use super::RangeLock;
use super::places::{PLACES, Places};
use crate::order::Held;
use crate::wait::Wait;

/// A slot that was taken, and the state of the list at that time. Small, because every operation passes it on.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    pub(super) place: u8,
    pub(super) meets_zaps: bool,
    pub(super) has_company: bool,
    pub(super) has_waited: bool,
}
const _: () = assert!(PLACES <= 256);

impl Taken {
    /// Returns a slot that was taken without meeting another request.
    pub(super) fn alone(place: usize) -> Self {
        Self {
            place: place as u8,
            meets_zaps: false,
            has_company: false,
            has_waited: false,
        }
    }
}

/// The ranges of a request, held until this is dropped.
pub struct RangeGuard<'a, W: Wait + ?Sized> {
    pub(super) ranges: &'a RangeLock,
    pub(super) machine: &'a W,
    pub(super) taken: Taken,
    pub(super) _held: Held,
}

impl<'a, W: Wait + ?Sized> RangeGuard<'a, W> {
    /// Returns the number of the slot: less than [`PLACES`], and unique while the slot is held.
    pub fn place(&self) -> usize {
        self.taken.place.into()
    }

    /// Whether a zap or a replacement was running in the ranges when they were acquired.
    pub fn meets_zaps(&self) -> bool {
        self.taken.meets_zaps
    }

    /// Whether other requests held ranges or waited when these were acquired. Zaps and replacements do not
    /// count.
    pub fn has_company(&self) -> bool {
        self.taken.has_company
    }

    /// Whether the request had to wait.
    pub fn has_waited(&self) -> bool {
        self.taken.has_waited
    }

    /// Keeps the ranges held without a guard, until [`RangeLock::guard_of`] makes another.
    pub fn into_place(self) -> usize {
        let mut guard = ManuallyDrop::new(self);
        // The checker of the lock order no longer sees this hold. Ranges of several lists are taken in the
        // order of the lists.
        let _ = core::mem::take(&mut guard._held);
        guard.place()
    }

    /// Whether one of the held ranges covers `range`.
    pub fn has(&self, range: &Range<u64>) -> bool {
        let places = self.ranges.places.lock(self.machine);
        places.has(self.place(), range)
    }

    /// Acquires a second range if this needs no wait, and releases any former second range. Returns whether
    /// `range` is held.
    pub fn try_extend(&self, range: &Range<u64>) -> bool {
        let mut is_had = false;
        self.ranges.release(self.machine, |places| {
            is_had = places.extend(self.place(), range);
        });
        is_had
    }

    /// Announces a zap of a part of the ranges, when its marks become visible there. A new mapping in the
    /// ranges waits for the zap.
    pub fn announce_zap(&self) {
        let mut places = self.ranges.places.lock(self.machine);
        places.announced.insert(self.place());
    }

    /// Releases all but `range`, which is zapped from now on.
    pub fn begin_zap(self, range: Range<u64>) -> ZapGuard<'a, W> {
        self.begin(|places, place| places.begin_zap(place, range))
    }

    /// Releases all but `range`, in which a new mapping replaces an old one.
    pub fn begin_replace(self, range: Range<u64>) -> ZapGuard<'a, W> {
        self.begin(|places, place| places.begin_replace(place, range))
    }

    fn begin(self, change: impl FnOnce(&mut Places, usize)) -> ZapGuard<'a, W> {
        let mut guard = ManuallyDrop::new(self);
        let _ = core::mem::take(&mut guard._held);
        let place = guard.place();
        guard
            .ranges
            .release(guard.machine, |places| change(places, place));
        ZapGuard {
            ranges: guard.ranges,
            machine: guard.machine,
            place,
        }
    }
}

impl<W: Wait + ?Sized> Drop for RangeGuard<'_, W> {
    fn drop(&mut self) {
        let place = self.place();
        self.ranges
            .release(self.machine, |places| places.free(place));
    }
}

/// A range that is zapped or replacing, until this is dropped.
pub struct ZapGuard<'a, W: Wait + ?Sized> {
    pub(super) ranges: &'a RangeLock,
    pub(super) machine: &'a W,
    pub(super) place: usize,
}

impl<W: Wait + ?Sized> ZapGuard<'_, W> {
    /// Returns the number of the slot.
    pub fn place(&self) -> usize {
        self.place
    }

    /// Keeps the range without its guard ([`RangeLock::zap_guard_of`]).
    pub fn into_place(self) -> usize {
        ManuallyDrop::new(self).place
    }

    /// Leaves a zap that is done, for another operation to end ([`RangeLock::end_left`]).
    pub fn leave(self) {
        let guard = ManuallyDrop::new(self);
        let mut places = guard.ranges.places.lock(guard.machine);
        places.left.insert(guard.place);
    }
}

impl<W: Wait + ?Sized> Drop for ZapGuard<'_, W> {
    fn drop(&mut self) {
        let place = self.place;
        self.ranges
            .release(self.machine, |places| places.free(place));
    }
}
