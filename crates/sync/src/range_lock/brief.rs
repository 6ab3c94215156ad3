//! Who is done at once needs no place: he keeps the list locked, and so others out.
//!
//! It is for what takes not long, and waits for nothing. Nobody has to be woken afterwards: what
//! others wait for has not changed.
//!
//! Written lines: the lock's, and that of a place, if something is left that is to be zapped.

use core::ops::Range;

use super::places::Places;
use super::{RangeLock, ZapGuard};
use crate::spin::SpinGuard;
use crate::wait::Wait;

impl RangeLock {
    /// Keeps others out of some ranges, if nobody has, waits for, or zaps anything of them. The list is
    /// locked as long: for what takes not long, and waits for nothing.
    #[inline(always)]
    pub fn try_keep_out<'a, W: Wait + ?Sized, const N: usize>(
        &'a self,
        ranges: [Range<u64>; N],
        machine: &'a W,
    ) -> Option<BriefGuard<'a, W>> {
        self.keep_out_if(machine, |places| places.are_nobodys(&ranges))
    }

    /// The same, beside who zaps there: for who sees that what he changes is not what they zap.
    #[inline(always)]
    pub fn try_keep_out_beside_zaps<'a, W: Wait + ?Sized>(
        &'a self,
        range: Range<u64>,
        machine: &'a W,
    ) -> Option<BriefGuard<'a, W>> {
        self.keep_out_if(machine, |places| places.is_nobodys_beside_zaps(&range))
    }

    #[inline(always)]
    fn keep_out_if<'a, W: Wait + ?Sized>(
        &'a self,
        machine: &'a W,
        are_free: impl FnOnce(&Places) -> bool,
    ) -> Option<BriefGuard<'a, W>> {
        let places = self.places.lock(machine);
        are_free(&places).then_some(BriefGuard {
            ranges: self,
            machine,
            places,
        })
    }
}

/// That nobody comes to some ranges: the list is locked.
pub struct BriefGuard<'a, W: Wait + ?Sized> {
    ranges: &'a RangeLock,
    machine: &'a W,
    places: SpinGuard<'a, Places>,
}

impl<'a, W: Wait + ?Sized> BriefGuard<'a, W> {
    /// Whether others have something elsewhere, or wait for it: not who zaps.
    pub fn has_company(&self) -> bool {
        self.places.has_holders()
    }

    /// The number of the next place, if there is one.
    #[inline]
    pub fn next_place(&self) -> Option<usize> {
        self.places.next_place()
    }

    /// Takes that place for `range`, of those that others were kept out of, to be zapped.
    #[inline]
    pub fn begin_zap(mut self, place: usize, range: Range<u64>) -> ZapGuard<'a, W> {
        self.take(place);
        self.places.begin_zap(place, range);
        self.guard(place)
    }

    /// The same for a range in which something has taken the place of something else.
    #[inline]
    pub fn begin_replace(mut self, place: usize, range: Range<u64>) -> ZapGuard<'a, W> {
        self.take(place);
        self.places.begin_replace(place, range);
        self.guard(place)
    }

    #[inline]
    fn take(&mut self, place: usize) {
        self.places.take_place(place);
        self.ranges.note_taken(&self.places);
    }

    fn guard(&self, place: usize) -> ZapGuard<'a, W> {
        ZapGuard {
            ranges: self.ranges,
            machine: self.machine,
            place,
        }
    }
}
