//! What is had of a [`RangeLock`], until it is dropped; and what is being zapped.

use core::mem::ManuallyDrop;
use core::ops::Range;

use super::RangeLock;
use super::places::{PLACES, Places};
use crate::order::Held;
use crate::wait::Wait;

/// A place that was taken, and what was seen then. Small: it is handed on by every operation.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    pub(super) place: u8,
    pub(super) meets_zaps: bool,
    pub(super) has_company: bool,
    pub(super) has_waited: bool,
}
const _: () = assert!(PLACES <= 256);

impl Taken {
    /// By who has met nobody.
    pub(super) fn alone(place: usize) -> Self {
        Self {
            place: place as u8,
            meets_zaps: false,
            has_company: false,
            has_waited: false,
        }
    }
}

/// What was wished for.
pub struct RangeGuard<'a, W: Wait + ?Sized> {
    pub(super) ranges: &'a RangeLock,
    pub(super) machine: &'a W,
    pub(super) taken: Taken,
    pub(super) _held: Held,
}

impl<'a, W: Wait + ?Sized> RangeGuard<'a, W> {
    /// The number of the place: less than [`PLACES`], and nobody else's meanwhile.
    pub fn place(&self) -> usize {
        self.taken.place.into()
    }

    /// Whether something was being zapped, or replaced, there when this was had.
    pub fn meets_zaps(&self) -> bool {
        self.taken.meets_zaps
    }

    /// Whether others had something, or waited, when this was had: not who zaps.
    pub fn has_company(&self) -> bool {
        self.taken.has_company
    }

    /// Whether somebody was waited for.
    pub fn has_waited(&self) -> bool {
        self.taken.has_waited
    }

    /// Keeps what is had without its guard; it is had until [`RangeLock::guard_of`] has made another.
    pub fn into_place(self) -> usize {
        let mut guard = ManuallyDrop::new(self);
        // What is had goes on, unseen by the checker: who has ranges in several lists has taken
        // them in the order of these.
        let _ = core::mem::take(&mut guard._held);
        guard.place()
    }

    /// Whether all of `range` is had.
    pub fn has(&self, range: &Range<u64>) -> bool {
        let places = self.ranges.places.lock(self.machine);
        places.has(self.place(), range)
    }

    /// Has a second range, too, if it can be had at once; whether it is. One that was had before
    /// goes.
    pub fn try_extend(&self, range: &Range<u64>) -> bool {
        let mut is_had = false;
        self.ranges.release(self.machine, |places| {
            is_had = places.extend(self.place(), range);
        });
        is_had
    }

    /// Says that some of it will be zapped, from when it can be seen there: who would put something
    /// new there waits for that.
    pub fn announce_zap(&self) {
        let mut places = self.ranges.places.lock(self.machine);
        places.announced.insert(self.place());
    }

    /// Keeps of all that was had `range`, to be zapped.
    pub fn begin_zap(self, range: Range<u64>) -> ZapGuard<'a, W> {
        self.begin(|places, place| places.begin_zap(place, range))
    }

    /// Keeps of all that was had `range`, in which something takes the place of something else.
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

/// A range that is being zapped, or replacing.
pub struct ZapGuard<'a, W: Wait + ?Sized> {
    pub(super) ranges: &'a RangeLock,
    pub(super) machine: &'a W,
    pub(super) place: usize,
}

impl<W: Wait + ?Sized> ZapGuard<'_, W> {
    /// The number of the place.
    pub fn place(&self) -> usize {
        self.place
    }

    /// Keeps the range without its guard ([`RangeLock::zap_guard_of`]).
    pub fn into_place(self) -> usize {
        ManuallyDrop::new(self).place
    }

    /// The zap is done, and somebody else is to end it ([`RangeLock::end_left`]).
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
