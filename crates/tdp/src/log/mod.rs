//! The dirty log of a slot: which pages the guest has written.
//!
//! **An entry that allows stores is the mark.** Logging maps pages without write access; the first store faults and gets it,
//! which marks the page, and writes no other line. So the log is read from the entries, with the bits of pages whose entries
//! have gone ([`bitmap`]).
//!
//! * Clearing a page takes write access away. After the flush at the end, every store faults again. Where hardware's dirty bit
//!   is used ([`crate::Options::dirty_bits`]), that bit is the mark and is cleared instead, and nothing faults.
//! * A guest with rings ([`ring`]) has no bits: each fault that makes a page dirty also pushes the page into its vCPU's ring.
//! * Nothing that a fault waits for is held. A store that is let through while the log is read is in this log or the next.
//!
//! *Writes*: entries that are cleared, and their bits.
//!
//! *Models*: loom `log.rs`, `ring.rs`.

pub(crate) mod bitmap;
mod page;
pub(crate) mod reset;
pub(crate) mod ring;

use faultless_mm::Errno;
use faultless_paging::{Pages, Value};
use faultless_sync::{Mutant, mutant};

use crate::format::SecondLevel;
use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::slots::slot::SlotBody;
use crate::tables::Spot;

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Calls `give` with each word of a slot's log, in order: bit `b` of word `w` is page `64 * w + b` of the slot. With
    /// `clears`, the pages are clean from then on, as seen once this returns.
    ///
    /// # Errors
    /// `ENXIO` for a guest with rings; `ENOENT` for a slot that is not there or not logged; what `give` returns.
    pub fn get_dirty_log(
        &self,
        slot: u32,
        clears: bool,
        give: &mut dyn FnMut(u64) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let _kept = self.changes.read(self.machine());
        self.check_log()?;
        let slots = self.slots_now();
        let slot = slots.by_number(slot).filter(|slot| slot.logs());
        let slot = slot.ok_or(Errno::ENOENT)?;
        let mut has_cleared = false;
        let mut result = Ok(());
        for first in (0..slot.pages.len()).step_by(64) {
            let bits = match clears {
                true => self.take_word(slot, first, u64::MAX, &mut has_cleared),
                false => self.read_word(slot, first),
            };
            result = give(bits);
            if result.is_err() {
                break;
            }
        }
        if !mutant(Mutant::LogClearedWithoutFlush) {
            self.flush_with_others(has_cleared);
        }
        result
    }

    /// Clears pages in a slot's log: `count` of them from page `first` on, where the words that `wanted` returns in turn have
    /// a bit.
    ///
    /// # Errors
    /// `ENXIO`, `ENOENT` as above; `EINVAL` if `first` or `count` is no multiple of 64, unless the range ends with the slot, or the
    /// range is not inside the slot; what `wanted` returns.
    pub fn clear_dirty_log(
        &self,
        slot: u32,
        first: u64,
        count: u64,
        wanted: &mut dyn FnMut() -> Result<u64, Errno>,
    ) -> Result<(), Errno> {
        let _kept = self.changes.read(self.machine());
        self.check_log()?;
        let slots = self.slots_now();
        if !first.is_multiple_of(64) {
            return Err(Errno::EINVAL);
        }
        let slot = slots.by_number(slot).filter(|slot| slot.logs());
        let slot = slot.ok_or(Errno::ENOENT)?;
        let rest = slot.pages.len().checked_sub(first);
        let is_inside =
            rest.is_some_and(|rest| count == rest || (count < rest && count.is_multiple_of(64)));
        if !is_inside {
            return Err(Errno::EINVAL);
        }
        let mut has_cleared = false;
        let mut result = Ok(());
        for at in (first..first + count).step_by(64) {
            match wanted() {
                Ok(0) => {}
                Ok(bits) => {
                    self.take_word(slot, at, bits, &mut has_cleared);
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        if !mutant(Mutant::LogClearedWithoutFlush) {
            self.flush_with_others(has_cleared);
        }
        result
    }

    /// Whether there are logs of slots, rather than rings.
    fn check_log(&self) -> Result<(), Errno> {
        match self.has_rings() {
            true => Err(Errno::ENXIO),
            false => Ok(()),
        }
    }

    /// Returns the pages of the slot that one word is about.
    fn pages_of_word(slot: &SlotBody, first: u64) -> Pages {
        let start = slot.pages.start + first;
        Pages::new(start, slot.pages.end.min(start + 64))
    }

    fn read_word(&self, slot: &SlotBody, first: u64) -> u64 {
        let _lock = self.mmu_lock();
        let _section = self.memory.enter();
        let pages = Self::pages_of_word(slot, first);
        let mut bits = 0;
        self.for_each(slot, pages, &mut |spot| {
            // A claim may be moving a mark to the bits.
            let value = self.settled(spot.entry);
            bits |= match spot.is_huge() {
                true => Self::bits_of_huge(spot, value, pages),
                false => {
                    u64::from(M::SecondLevel::is_written(value)) << (spot.first() - pages.start)
                }
            };
        });
        // The bits last: of an entry that is zapped meanwhile, the bit was set before.
        bits | bitmap::word(self.machine(), slot, first).map_or(0, |word| word.load())
            & mask(pages.len())
    }

    /// Returns the bits of these pages that a huge entry's value says are dirty.
    #[cold]
    fn bits_of_huge(spot: Spot<'_>, value: Value, pages: Pages) -> u64 {
        let part = pages.and(spot.pages());
        match spot.has_page::<M::SecondLevel>(value) && M::SecondLevel::is_written(value) {
            true => mask(part.len()) << (part.start - pages.start),
            false => 0,
        }
    }

    /// Returns which of the wanted pages are dirty, and makes them clean.
    pub(crate) fn take_word(
        &self,
        slot: &SlotBody,
        first: u64,
        wanted: u64,
        has_cleared: &mut bool,
    ) -> u64 {
        let _lock = self.mmu_lock();
        let _section = self.memory.enter();
        let pages = Self::pages_of_word(slot, first);
        let wanted = wanted & mask(pages.len());
        if wanted == 0 {
            return 0;
        }
        let end = pages.start + u64::from(u64::BITS - wanted.leading_zeros());
        let part = Pages::new(pages.start + u64::from(wanted.trailing_zeros()), end);
        let mut bits = 0;
        self.for_each(slot, part, &mut |spot| {
            if spot.is_huge() {
                *has_cleared |= self.open_huge(slot, spot);
                return;
            }
            let bit = 1 << (spot.first() - pages.start);
            if wanted & bit == 0 {
                return;
            }
            if self.change(spot, |value| self.cleaned(value)).is_some() {
                bits |= bit;
                *has_cleared = true;
            }
        });
        let word = bitmap::word(self.machine(), slot, first);
        bits | word.map_or(0, |word| bitmap::take(word, wanted))
    }

    /// Returns the entry of a page that was written, so that it no longer says so.
    #[inline]
    pub(crate) fn cleaned(&self, value: u64) -> Option<u64> {
        M::SecondLevel::is_written(value).then(|| match self.has_dirty_bits() {
            true => Self::FORMAT.cleaned(value),
            false => M::SecondLevel::protected(value),
        })
    }

    /// Makes all pages of a slot clean, and flushes.
    pub(crate) fn protect_all(&self, slot: &SlotBody) {
        let pages = slot.pages;
        let mut has_changed = false;
        let mut at = pages.start;
        while at < pages.end {
            let part = Pages::new(at, pages.end.min(at + 512));
            let _lock = self.mmu_lock();
            let _section = self.memory.enter();
            self.for_each(slot, part, &mut |spot| {
                has_changed |= match spot.is_huge() {
                    true => self.protect_huge(slot, spot),
                    false => self.change(spot, |value| self.cleaned(value)).is_some(),
                };
            });
            at = part.end;
        }
        if !mutant(Mutant::LogClearedWithoutFlush) {
            self.flush_with_others(has_changed);
        }
    }
}

/// The bits of `count` pages, at most 64.
fn mask(count: u64) -> u64 {
    match count {
        64.. => u64::MAX,
        count => (1 << count) - 1,
    }
}
