//! Follows what the host changes: called before each flush of a host that has guests.
//!
//! Every entry of the guest that shows one of the changed pages is compared with the host's entry as it is now, and zapped
//! or lowered if that shows less. The range that the host reports may be larger than what it has changed, so this also
//! leaves alone what is still right.
//!
//! The host's entries were changed by read-modify-writes. A fault of the guest that has seen one of them as it was before
//! has claimed its own entry before this look, which waits for the claim ([`faultless_mm::HostPages`]).
//!
//! * The entry of a huge page is compared as a whole with that of the host's huge page. If the host has none there any more, it
//!   is zapped.
//! * A slot that leaves is looked at until its pages are zapped.
//! * An entry that counts as written is claimed, its bit in the log is set, and then it is changed. So no log that is read
//!   meanwhile misses both. A mark may be one of a log that began after the look at the slots; they are looked at again under
//!   the claim.
//!
//! *Writes*: entries; bits of the log for pages that are zapped.
//!
//! *Models*: loom `host.rs`, `log.rs`, `slots.rs`.

use core::ptr;

use faultless_mm::{HostPage, HostPages, ToldPages};
use faultless_paging::{Page, Pages};
use faultless_sync::atomic::Ordering;
use faultless_sync::{Backoff, Mutant, mutant};

use crate::flush::Lowering;
use crate::format::SecondLevel;
use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::slots::Slots;
use crate::slots::slot::SlotBody;
use crate::tables::{InterruptsOff, Spot};

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
            self.for_each(slot, part, &mut |spot| {
                let page = spot.first();
                let at = Page(slot.host_of(page));
                let left = |value| match spot.is_huge() {
                    false => Self::left_by(host.get(at), value),
                    true => Self::left_by(host.get_huge(at), value),
                };
                let owner = || self.owner(slots, (slot, leaves), page);
                are_same = are_same && self.follow_one(slot, spot, left, owner, lowering);
            });
        }
        are_same
    }

    /// Returns what is left of an entry, given what the host shows in its place; `None` if all of it is right.
    #[inline]
    fn left_by(host: Option<HostPage>, value: u64) -> Option<u64> {
        match host {
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
        spot: Spot<'_>,
        mut left: impl FnMut(u64) -> Option<u64>,
        owner: impl Fn() -> Owner,
        lowering: &mut Lowering<'_, M, S>,
    ) -> bool {
        let machine = self.machine();
        let mut backoff = Backoff::new();
        loop {
            let value = spot.entry.load();
            if Self::FORMAT.is_claimed(value) {
                backoff.turn(machine);
                continue;
            }
            if !spot.has_page::<M::SecondLevel>(value) {
                return true;
            }
            let Some(new) = left(value) else {
                return true;
            };
            lowering.will_change();
            if !M::SecondLevel::is_written(value) || mutant(Mutant::MarkMovedWithoutClaim) {
                if slot.logs() && M::SecondLevel::is_written(value) {
                    self.mark(slot, spot);
                }
                if spot.entry.replace(value, new).is_err() {
                    continue;
                }
            } else {
                let _off = InterruptsOff::new(machine);
                let Ok(claim) = spot.entry.claim::<M::SecondLevel>(value, machine.cpu()) else {
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
                    self.mark(slot, spot);
                }
                claim.publish(new);
            }
            if new == 0 {
                self.unmapped(slot, spot);
            }
            return true;
        }
    }
}
