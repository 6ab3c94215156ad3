//! Sets a memory slot: makes, moves or deletes it, or switches its dirty log (KVM: `KVM_SET_USER_MEMORY_REGION`).
//!
//! The new snapshot is complete before it is published, so that an error changes nothing. Then, after a fence, the entries of
//! the old slot are zapped, or protected if only logging begins. No fault waits for that: one that finds an entry empty
//! maps the page anew, from the slots as they are then.
//!
//! *Writes*: the snapshot's word; entries of the slot's pages.

use core::ptr;

use faultless_mm::Errno;
use faultless_paging::{Frame, PAGE_SIZE, Pages};
use faultless_sync::atomic::{Ordering, fence};

use crate::fault::LIMIT;
use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::log::bitmap;
use crate::slots::slot::{Slot, SlotBody, SlotFlags};
use crate::slots::words::Words;
use crate::slots::{MOST_SLOTS, Slots, Snapshot};

/// The largest number of pages of a slot (Linux: `KVM_MEM_MAX_NR_PAGES`).
const MOST_PAGES: u64 = (1 << 31) - 1;

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Makes a slot, or changes the one with this number: its address, whether it is logged, or, with size 0, its existence.
    ///
    /// # Errors
    /// `EINVAL` for what is not aligned, wraps, is too large or outside the host's or the tables' addresses, for a number that is too high,
    /// for a slot to be deleted that is not there, and for a change that is none of these; `EEXIST` if another slot has some
    /// of the pages; `ENOMEM`. Nothing is changed then.
    pub fn set_slot(&self, number: u32, slot: &Slot) -> Result<(), Errno> {
        let pages = self.check(number, slot)?;
        let _changes = self.changes.write(self.machine());
        let slots = self.slots_now();
        let old = slots.by_number(number);
        let Some(old) = old else {
            if pages.is_empty() {
                return Err(Errno::EINVAL);
            }
            let body = self.new_body(&slots, number, slot, pages)?;
            self.fill_rmap(slots.body(body.0))?;
            return self.replace(&slots, None, Some(body), false);
        };
        if pages.is_empty() {
            self.replace(&slots, Some(old), None, false)?;
            self.zap(old);
            self.retire_body(old);
            return Ok(());
        }
        let meant = SlotFlags::LOG_DIRTY_PAGES | SlotFlags::READONLY;
        let changed = (old.flags ^ slot.flags) & meant;
        let is_elsewhere = old.host != slot.host_address / PAGE_SIZE;
        let is_larger = old.pages.len() != pages.len();
        if is_elsewhere || is_larger || changed.contains(SlotFlags::READONLY) {
            return Err(Errno::EINVAL);
        }
        let moves = old.pages.start != pages.start;
        if !moves && changed.is_empty() {
            return Ok(());
        }
        let body = self.new_body(&slots, number, slot, pages)?;
        match moves {
            true => self.fill_rmap(slots.body(body.0))?,
            // Nothing is unmapped.
            false => slots.body(body.0).rmap.adopt(&old.rmap),
        }
        self.replace(&slots, Some(old), Some(body), !moves)?;
        if moves {
            self.zap(old);
        } else if slot.flags.contains(SlotFlags::LOG_DIRTY_PAGES)
            && !slot.flags.contains(SlotFlags::LOG_BEGINS_FULL)
        {
            self.protect_all(slots.body(body.0));
        }
        match moves {
            true => self.retire_body(old),
            false => self.retire_without_rmap(old),
        }
        Ok(())
    }

    /// Checks what does not depend on other slots. Returns the guest's pages.
    fn check(&self, number: u32, slot: &Slot) -> Result<Pages, Errno> {
        let is_aligned = [slot.guest_address, slot.size, slot.host_address]
            .iter()
            .all(|value| value.is_multiple_of(PAGE_SIZE));
        let end = slot.guest_address.checked_add(slot.size);
        let host_end = slot.host_address.checked_add(slot.size);
        let layout = self.space().layout();
        let is_inside = host_end.is_some_and(|end| end <= layout.end);
        let is_small = slot.size / PAGE_SIZE <= MOST_PAGES;
        match end {
            Some(end)
                if is_aligned
                    && is_inside
                    && is_small
                    && end / PAGE_SIZE <= LIMIT
                    && (number as usize) < MOST_SLOTS =>
            {
                Ok(Pages::of_bytes(slot.guest_address..end))
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Makes a slot's body, with its log, that is not published yet.
    fn new_body(
        &self,
        slots: &Slots<'_, M>,
        number: u32,
        slot: &Slot,
        pages: Pages,
    ) -> Result<Frame, Errno> {
        let meets = |body: &SlotBody| body.number != number && !body.pages.and(pages).is_empty();
        if slots.iter().any(meets) {
            return Err(Errno::EEXIST);
        }
        let frame = self.memory.allocate_table()?;
        let body = self.machine().pointer(frame).cast::<SlotBody>();
        let content = SlotBody {
            frame,
            number,
            flags: slot.flags,
            pages,
            host: slot.host_address / PAGE_SIZE,
            log: Words::new(),
            rmap: Words::new(),
        };
        // SAFETY: a frame that only this function uses, large enough and aligned.
        let body = unsafe {
            body.write(content);
            body.as_ref()
        };
        if body.logs() {
            bitmap::fill(self.memory, body).inspect_err(|_| self.retire_body(body))?;
        }
        Ok(frame)
    }

    /// Makes the reverse map of a new slot. If that fails, the slot is gone.
    fn fill_rmap(&self, body: &SlotBody) -> Result<(), Errno> {
        if !self.options.tdp_mmu {
            let filled = body.rmap.fill(self.memory, body.pages.len(), 0);
            filled.inspect_err(|_| self.retire_body(body))?;
        }
        Ok(())
    }

    /// Publishes the slots without `old` and with `new`. If that fails, `new` is gone; the reverse map stays, if it is
    /// `old`'s, too.
    fn replace(
        &self,
        slots: &Slots<'_, M>,
        old: Option<&SlotBody>,
        new: Option<Frame>,
        shares_rmap: bool,
    ) -> Result<(), Errno> {
        let new_body = new.map(|frame| slots.body(frame.0));
        let drop_new = || match new_body {
            Some(body) if shares_rmap => self.retire_without_rmap(body),
            Some(body) => self.retire_body(body),
            None => {}
        };
        let count = slots.iter().count() - usize::from(old.is_some()) + usize::from(new.is_some());
        if count > MOST_SLOTS {
            drop_new();
            return Err(Errno::EINVAL);
        }
        let frame = self.memory.allocate_table().inspect_err(|_| drop_new())?;
        // SAFETY: a zeroed frame that only this function uses.
        let snapshot = unsafe { Snapshot::begin(self.machine(), frame) };
        let mut push = |frame: u64| {
            snapshot.frames[snapshot.count] = frame;
            snapshot.count += 1;
        };
        let mut waiting = new.zip(new_body);
        for &frame in slots.frames() {
            let body = slots.body(frame);
            if old.is_some_and(|old| ptr::eq(old, body)) {
                continue;
            }
            if let Some((new, _)) = waiting.take_if(|(_, new)| new.pages.start < body.pages.start) {
                push(new.0);
            }
            push(frame);
        }
        if let Some((new, _)) = waiting {
            push(new.0);
        }
        // Release: a fault that finds the snapshot finds it filled in.
        self.slots.store(frame.0, Ordering::Release);
        // Rule R1, before the look at entries. Partner: the barrier of a fault's claim.
        fence(Ordering::SeqCst);
        self.memory.retire_table(Frame(slots.frame));
        Ok(())
    }

    /// Retires a slot that is not published, or is no longer.
    pub(crate) fn retire_body(&self, body: &SlotBody) {
        body.rmap.retire(self.memory);
        self.retire_without_rmap(body);
    }

    /// The same, but for its reverse map, which another slot has.
    fn retire_without_rmap(&self, body: &SlotBody) {
        body.log.retire(self.memory);
        self.memory.retire_table(body.frame);
    }
}
