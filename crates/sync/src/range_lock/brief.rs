//! Fast path for short operations on uncontended ranges: the list stays locked, and no slot is taken.
//!
//! While the list is locked no conflicting request can arrive. The operation must be short and must not wait.
//! No wake-up follows, because nothing that other requests wait for has changed.
//!
//! *Writes*: the lock's line; the line of a slot, if a zap or a replacement goes on afterwards.

use core::ops::Range;

use super::places::Places;
use super::{RangeLock, ZapGuard};
use crate::spin::SpinGuard;
use crate::wait::Wait;

impl RangeLock {
    /// Holds some ranges, if no other request holds, waits for, or zaps a part of them. The list stays locked
    /// meanwhile, so the operation must be short and must not wait.
    #[inline(always)]
    pub fn try_keep_out<'a, W: Wait + ?Sized, const N: usize>(
        &'a self,
        ranges: [Range<u64>; N],
        machine: &'a W,
    ) -> Option<BriefGuard<'a, W>> {
        self.keep_out_if(machine, |places| places.are_free(&ranges))
    }

    /// The same for one range in which zaps may be running. The caller checks that it changes nothing that they
    /// zap.
    #[inline(always)]
    pub fn try_keep_out_beside_zaps<'a, W: Wait + ?Sized>(
        &'a self,
        range: Range<u64>,
        machine: &'a W,
    ) -> Option<BriefGuard<'a, W>> {
        self.keep_out_if(machine, |places| places.is_free_beside_zaps(&range))
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

/// A hold of some ranges: the list is locked, so no request can arrive.
pub struct BriefGuard<'a, W: Wait + ?Sized> {
    ranges: &'a RangeLock,
    machine: &'a W,
    places: SpinGuard<'a, Places>,
}

impl<'a, W: Wait + ?Sized> BriefGuard<'a, W> {
    /// Whether other requests hold ranges elsewhere or wait for them. Zaps and replacements do not count.
    pub fn has_company(&self) -> bool {
        self.places.has_holders()
    }

    /// Returns the number of the next slot, if one is free.
    #[inline]
    pub fn next_place(&self) -> Option<usize> {
        self.places.next_place()
    }

    /// Takes that slot for a zap of `range`, a part of the ranges that are held.
    #[inline]
    pub fn begin_zap(mut self, place: usize, range: Range<u64>) -> ZapGuard<'a, W> {
        self.take(place);
        self.places.begin_zap(place, range);
        self.guard(place)
    }

    /// The same for a range in which a new mapping has replaced an old one.
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
