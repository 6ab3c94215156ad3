//! Read-ahead: a fault that has read a page from a slow swap device reads pages behind it, too, several at a time.
//!
//! There is no swap cache (docs/decisions/0017), so what is read ahead is mapped, in the entries that name it.
//!
//! * A neighbour is a page behind the fault's, of the same table, with a slot near the fault's on the same device: pages
//!   that left together. A program that walks through them gets several for one wait.
//! * Each is a swap-in of its own: it holds a use of its slot, is read with nothing held, and is published by the same
//!   claim and validation (rule R4). It is tried once. If anything has changed, the page stays where it is.
//! * It counts as unused, until an access. So reclaim takes first what was read in vain.
//! * No memory is looked for: read-ahead uses what is free.
//!
//! *Writes*: what a swap-in writes.
//!
//! *Models*: loom `fault/swap.rs`.

use faultless_paging::{Access, ENTRIES, Page, SwapEntry, Walk};
use faultless_trace::Counter;

use crate::base::machine::Machine;
use crate::fault::state::FaultState;
use crate::fault::{Outcome, PteRef};
use crate::lock::vma::{Mode, VmaRef};
use crate::space::AddressSpace;
use crate::table::retry::Retry;
use crate::tune::READ_AHEAD;

/// A page that is read ahead.
struct Ahead<M: Machine> {
    page: Page,
    state: FaultState<M, ()>,
}

impl<M: Machine> AddressSpace<M> {
    /// Reads and maps pages behind one that a fault has read from its slot. The caller holds nothing.
    #[cold]
    pub(crate) fn read_ahead(&self, page: Page, swapped: &SwapEntry) {
        let most = self.memory().read_ahead_on(swapped.device);
        let table_end = (page.0 | (ENTRIES as u64 - 1)) + 1;
        let end = table_end.min(page.0 + 1 + u64::from(most));
        let mut ahead = [const { None }; READ_AHEAD];
        for (place, at) in ahead.iter_mut().zip(page.0 + 1..end) {
            *place = self.hold_ahead(Page(at), swapped);
        }
        // Frames after the slots, and outside of the section in which these were held.
        for place in &mut ahead {
            if place
                .as_mut()
                .is_some_and(|ahead| !ahead.state.has_frame_to_fill())
            {
                *place = None;
            }
        }
        let read = self.memory().read_slots(READ_AHEAD, |number| {
            let ahead: Option<&Ahead<M>> = ahead.get(number)?.as_ref();
            ahead?.state.slot_and_frame()
        });
        for (number, ahead) in ahead.into_iter().enumerate() {
            if let Some(mut ahead) = ahead.filter(|_| read & 1 << number != 0) {
                ahead.state.set_read_ahead();
                let _ = self.publish_ahead(ahead.page, &mut ahead.state);
            }
        }
    }

    /// Holds the slot of a page, if it is a neighbour of the one that was read.
    fn hold_ahead(&self, page: Page, of: &SwapEntry) -> Option<Ahead<M>> {
        let section = self.memory().enter();
        let Walk::Leaf { entry, value, .. } = self.tables().look(page, &section) else {
            return None;
        };
        let swapped = self.tables().swap_of(value)?;
        let is_near = swapped.device == of.device
            && swapped.slot.abs_diff(of.slot) <= READ_AHEAD as u64
            && self.memory().is_written(&swapped);
        if !is_near {
            return None;
        }
        let mut state = FaultState::new(self.memory(), (), true);
        let held = state.swapped_page(&swapped, (entry, value));
        matches!(held, Err(Retry::Wait(_))).then_some(Ahead { page, state })
    }

    /// Makes one try to map a page that was read, as `attempt` of the fault engine.
    fn publish_ahead(&self, page: Page, state: &mut FaultState<M, ()>) -> Result<Outcome, Retry> {
        let section = self.memory().enter();
        // `Locked` without its lock: held by validation alone, as under the policy `speculative`.
        let vma = VmaRef::find(&self.maps, page, Mode::Locked, &section)?;
        let vma = vma.ok_or(Retry::MappingChanged)?;
        let Walk::Leaf { entry, value, link } = self.tables().look(page, &section) else {
            return Err(Retry::TableChanged);
        };
        if link.is_frozen() || !vma.protection().read || self.tables().swap_of(value).is_none() {
            return Err(Retry::EntryClaimed);
        }
        let at = PteRef {
            entry,
            value,
            link,
            vma: &vma,
        };
        let outcome = self.swap_in(&at, page, Access::Read, state)?;
        self.memory().count(Counter::SwapRa);
        Ok(outcome)
    }
}
