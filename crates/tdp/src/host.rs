//! Follows what the host changes: called before each flush of a host that has guests.
//!
//! Every entry of the guest that shows one of the changed pages is compared with the host's entry as it is now, and zapped
//! or lowered if that shows less. The range that the host reports may be larger than what it has changed, so this also
//! leaves alone what is still right.
//!
//! The host's entries were changed by read-modify-writes. A fault of the guest that has seen one of them as it was before
//! has claimed its own entry before this look, which waits for the claim ([`faultless_mm::HostPages`]).
//!
//! * A slot that leaves is looked at until its pages are zapped.
//! * An entry that counts as written is claimed, its bit in the log is set, and then it is changed. So no log that is read
//!   meanwhile misses both. A mark may be one of a log that began after the look at the slots; they are looked at again under
//!   the claim.
//!
//! *Writes*: entries; bits of the log for pages that are zapped.
//!
//! *Models*: loom `host.rs`, `log.rs`, `slots.rs`.

use core::ptr;

use faultless_mm::{HostPages, ToldPages};
use faultless_paging::{Entry, Page, Pages};
use faultless_sync::atomic::Ordering;
use faultless_sync::{Backoff, Mutant, mutant};

use crate::flush::Lowering;
use crate::format::SecondLevel;
use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::log::bitmap;
use crate::slots::Slots;
use crate::slots::slot::SlotBody;
use crate::tables::InterruptsOff;

/// Whose an entry is.
enum Owner {
    /// The slot's that was asked for.
    This,
    /// That of another one of the slots.
    Other,
    /// The slots have changed.
    Unknown,
}

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Zaps or lowers what the host's entries no longer show. The caller is in a section.
    pub(crate) fn follow(&self, host: &HostPages<'_, M>, pages: Pages) {
        let mut lowering = self.lowering();
        let _lock = self.mmu_lock();
        let mut host = host.told();
        while !self.follow_in(&self.slots_now(), &mut host, pages, &mut lowering) {}
        lowering.finish_with_others();
    }

    /// Does so for these slots. Returns whether they were the guest's as long as that mattered.
    fn follow_in(
        &self,
        slots: &Slots<'_, M>,
        host: &mut ToldPages<'_, M>,
        pages: Pages,
        lowering: &mut Lowering<'_, M, S>,
    ) -> bool {
        let mut are_same = true;
        let leaving = self.leaving().map(|slot| (slot, true));
        for (slot, leaves) in slots.iter().map(|slot| (slot, false)).chain(leaving) {
            let part = slot.guest_of(pages);
            if part.is_empty() {
                continue;
            }
            self.for_each(slot, part, &mut |entry, page| {
                let left = |value| Self::left_by(host, Page(slot.host_of(page)), value);
                let owner = || self.owner(slots, (slot, leaves), page);
                are_same = are_same && self.follow_one(slot, (entry, page), left, owner, lowering);
            });
        }
        are_same
    }

    /// Returns what is left of an entry, of which the host's page is given; `None` if all of it is right.
    #[inline]
    fn left_by(host: &mut ToldPages<'_, M>, page: Page, value: u64) -> Option<u64> {
        match host.get(page) {
            Some(shown) if shown.is_used && shown.frame == Self::FORMAT.frame(value) => {
                let is_right = shown.takes_stores || !M::SecondLevel::may_write(value);
                (!is_right).then(|| M::SecondLevel::lowered(value))
            }
            _ => Some(0),
        }
    }

    /// Whose a claimed entry of a page is, which was found by a slot of these, or by one that left. The entry of a page that leaves is
    /// that of the slot that leaves, also where that has moved by a part of itself.
    #[inline]
    fn owner(&self, slots: &Slots<'_, M>, (slot, left): (&SlotBody, bool), page: u64) -> Owner {
        if self.slots.load(Ordering::Relaxed) != slots.frame {
            return Owner::Unknown;
        }
        match self.leaving().filter(|old| old.pages.contains(Page(page))) {
            Some(old) if ptr::eq(old, slot) => Owner::This,
            Some(_) => Owner::Other,
            None if !left => Owner::This,
            // It has left meanwhile.
            None => Owner::Unknown,
        }
    }

    #[inline]
    fn follow_one(
        &self,
        slot: &SlotBody,
        (entry, page): (&Entry, u64),
        mut left: impl FnMut(u64) -> Option<u64>,
        owner: impl Fn() -> Owner,
        lowering: &mut Lowering<'_, M, S>,
    ) -> bool {
        let machine = self.machine();
        let mut backoff = Backoff::new();
        loop {
            let value = entry.load();
            if Self::FORMAT.is_claimed(value) {
                backoff.turn(machine);
                continue;
            }
            if !M::SecondLevel::has_page(value) {
                return true;
            }
            let Some(new) = left(value) else {
                return true;
            };
            lowering.will_change();
            if !M::SecondLevel::is_written(value) || mutant(Mutant::MarkMovedWithoutClaim) {
                if slot.logs() && M::SecondLevel::is_written(value) {
                    bitmap::set(machine, slot, page - slot.pages.start);
                }
                if entry.replace(value, new).is_err() {
                    continue;
                }
            } else {
                let _off = InterruptsOff::new(machine);
                let Ok(claim) = entry.claim::<M::SecondLevel>(value, machine.cpu()) else {
                    continue;
                };
                // The mark was made after its log began, and the claim has seen the mark.
                match owner() {
                    Owner::This => {}
                    _ if mutant(Mutant::MarkMovedToOldLog) => {}
                    Owner::Other => return true,
                    Owner::Unknown => return false,
                }
                if slot.logs() && !mutant(Mutant::ZappedNotLogged) {
                    bitmap::set(machine, slot, page - slot.pages.start);
                }
                claim.publish(new);
            }
            if new == 0 {
                self.unmapped(slot, page);
            }
            return true;
        }
    }
}
