//! The fast path of a guest with rings: as [`crate::fault::fast`], and a page that becomes dirty is pushed into the vCPU's ring.
//!
//! The page is pushed as one of a slot, so the slot has to be found, and has to be the page's when its entry allows stores. A slot
//! that is moved, or another that takes its place, could show the same entry again; a compare-and-swap would not notice. So
//! the entry is claimed, the slots are validated, as for a page that is mapped, and the page is pushed before the entry is published
//! ([`crate::log::ring`]).
//!
//! *Writes*: the entry; a place of the ring.
//!
//! *Models*: loom `ring.rs`.

use faultless_paging::{Entry, Page, Pages, Value, Walk};
use faultless_sync::{Mutant, mutant};

use crate::fault::fast::EntrySink;
use crate::fault::{GuestFault, Repair};
use crate::format::SecondLevel;
use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::tables::InterruptsOff;

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Repairs the entry of a page. `None` if it takes more than what the entry says, or if the ring is full.
    #[inline(never)]
    pub(crate) fn repair_in_ring(
        &self,
        fault: &GuestFault<'_>,
        sink: &mut impl EntrySink,
    ) -> Option<Repair> {
        let page = Page::containing(fault.address);
        let section = self.memory.enter();
        let Walk::Leaf {
            entry, mut value, ..
        } = self.descend(page, &section)
        else {
            return self.repair_huge(page, fault.access, sink, &section);
        };
        loop {
            sink.found(value);
            let new = Self::repaired(value, fault.access)?;
            if new == value {
                return Some(Repair::Spurious);
            }
            let becomes_dirty =
                M::SecondLevel::is_written(new) && !M::SecondLevel::is_written(value);
            let result = match becomes_dirty {
                true => self.make_dirty(fault, entry, [value, new])?,
                false => entry.replace(value, new),
            };
            match result {
                Ok(()) => {
                    sink.changed(new);
                    return Some(Repair::Fast);
                }
                Err(now) => value = now,
            }
        }
    }

    /// Replaces an entry by one that allows stores. Fails with the entry that is there instead; `None`: as above. The caller is in a
    /// section.
    #[inline]
    fn make_dirty(
        &self,
        fault: &GuestFault<'_>,
        entry: &Entry,
        [value, new]: [Value; 2],
    ) -> Option<Result<(), Value>> {
        let page = Page::containing(fault.address);
        let slots = self.slots_now();
        let slot = slots.find(page.0)?;
        let machine = self.machine();
        let _off = InterruptsOff::new(machine);
        if mutant(Mutant::PushedBeforeClaim) && slot.logs() {
            self.push(slot, page, fault.ring).ok()?;
        }
        let claim = match entry.claim::<M::SecondLevel>(value, machine.cpu()) {
            Ok(claim) => claim,
            Err(now) => return Some(Err(now)),
        };
        let pages = Pages::new(page.0, page.0 + 1);
        if !self.has_slots(slots.frame, pages) && !mutant(Mutant::SlotsNotValidated) {
            return None;
        }
        if slot.logs() && !mutant(Mutant::PushedBeforeClaim) {
            self.push(slot, page, fault.ring).ok()?;
        }
        claim.publish(new);
        Some(Ok(()))
    }
}
