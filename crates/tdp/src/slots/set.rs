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
use faultless_sync::Backoff;
use faultless_sync::atomic::{Ordering, fence};

use crate::fault::LIMIT;
use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::log::bitmap;
use crate::slots::slot::{Slot, SlotBody, SlotFlags};
use crate::slots::words::Words;
use crate::slots::{MOST_SLOTS, Slots, Snapshot};

/// What a slot has from the one that it replaces.
#[derive(Clone, Copy, Default)]
struct Kept {
    log: bool,
    rmap: bool,
}

/// The largest number of pages of a slot (Linux: `KVM_MEM_MAX_NR_PAGES`).
const MOST_PAGES: u64 = (1 << 31) - 1;

/// How often a change looks for memory.
const SEARCHES: u32 = 64;
/// How often it does while retired memory waits for readers.
const WAITS: u32 = if cfg!(any(loom, shuttle)) {
    SEARCHES
} else {
    1 << 16
};

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Makes a slot, or changes the one with this number: its address, whether it is logged, or, with size 0, its existence.
    ///
    /// # Errors
    /// `EINVAL` for what is not aligned, wraps, is too large or outside the host's or the tables' addresses, for a number that is too high,
    /// for a slot to be deleted that is not there, and for a change that is none of these; `EEXIST` if another slot has some
    /// of the pages; `ENOMEM`. Nothing is changed then.
    pub fn set_slot(&self, number: u32, slot: &Slot) -> Result<(), Errno> {
        let mut backoff = Backoff::new();
        loop {
            match self.try_set_slot(number, slot) {
                // What earlier changes have retired may wait for a reader, which may be a descheduled thread of the host.
                Err(Errno::ENOMEM)
                    if backoff.turns() < SEARCHES
                        || (backoff.turns() < WAITS && self.memory.deferred() > 0) =>
                {
                    self.find_memory();
                    backoff.rest(self.machine());
                }
                ended => return ended,
            }
        }
    }

    fn try_set_slot(&self, number: u32, slot: &Slot) -> Result<(), Errno> {
        let pages = self.check(number, slot)?;
        let _changes = self.changes.write(self.machine());
        let slots = self.slots_now();
        let old = slots.by_number(number);
        let Some(old) = old else {
            if pages.is_empty() {
                return Err(Errno::EINVAL);
            }
            let body = self.new_body(&slots, number, slot, pages, None)?;
            let body_of = slots.body(body.0);
            self.fill_rmap(body_of)
                .inspect_err(|_| self.retire_body(body_of))?;
            return self.replace(&slots, None, Some(body), Kept::default());
        };
        if pages.is_empty() {
            self.replace_and_zap(&slots, old, None, Kept::default())?;
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
        let kept = Kept {
            // A log goes on where the slot moves.
            log: old.logs() && slot.flags.contains(SlotFlags::LOG_DIRTY_PAGES),
            // Without a move nothing is unmapped.
            rmap: !moves,
        };
        let body = self.new_body(&slots, number, slot, pages, kept.log.then_some(old))?;
        match kept.rmap {
            true => slots.body(body.0).rmap.adopt(&old.rmap),
            false => self
                .fill_rmap(slots.body(body.0))
                .inspect_err(|_| self.retire_but(slots.body(body.0), kept))?,
        }
        match moves {
            true => self.replace_and_zap(&slots, old, Some(body), kept)?,
            false => self.replace(&slots, Some(old), Some(body), kept)?,
        }
        if !moves {
            match slots.body(body.0) {
                new if !new.logs() => self.recover_huge(new),
                new if !new.flags.contains(SlotFlags::LOG_BEGINS_FULL) => self.protect_all(new),
                _ => {}
            }
        }
        self.retire_but(old, kept);
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

    /// Makes a slot's body, with its log or that of another slot, that is not published yet.
    fn new_body(
        &self,
        slots: &Slots<'_, M>,
        number: u32,
        slot: &Slot,
        pages: Pages,
        log_of: Option<&SlotBody>,
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
        if let Some(other) = log_of {
            body.log.adopt(&other.log);
        } else if body.logs() && !self.has_rings() {
            bitmap::fill(self.memory, body).inspect_err(|_| self.retire_body(body))?;
        }
        Ok(frame)
    }

    /// Makes the reverse map of a new slot.
    fn fill_rmap(&self, body: &SlotBody) -> Result<(), Errno> {
        match self.options.tdp_mmu {
            true => Ok(()),
            false => Ok(body.rmap.fill(self.memory, body.pages.len(), 0)?),
        }
    }

    /// Replaces a slot whose pages are zapped. They are flushed on return.
    fn replace_and_zap(
        &self,
        slots: &Slots<'_, M>,
        old: &SlotBody,
        new: Option<Frame>,
        kept: Kept,
    ) -> Result<(), Errno> {
        // Relaxed: before the release of the snapshot.
        self.leaving.store(old.frame.0, Ordering::Relaxed);
        let result = self.replace(slots, Some(old), new, kept);
        if result.is_ok() {
            self.zap(old, kept.log);
        }
        // Release: without this slot the host finds its pages zapped, and flushed.
        self.leaving.store(0, Ordering::Release);
        result
    }

    /// Publishes the slots without `old` and with `new`. If that fails, `new` is gone, but for what it has from `old`.
    fn replace(
        &self,
        slots: &Slots<'_, M>,
        old: Option<&SlotBody>,
        new: Option<Frame>,
        kept: Kept,
    ) -> Result<(), Errno> {
        let new_body = new.map(|frame| slots.body(frame.0));
        let drop_new = || {
            if let Some(body) = new_body {
                self.retire_but(body, kept);
            }
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
        self.retire_but(body, Kept::default());
    }

    /// The same, but for what another slot has.
    fn retire_but(&self, body: &SlotBody, kept: Kept) {
        if !kept.rmap {
            body.rmap.retire(self.memory);
        }
        if !kept.log {
            body.log.retire(self.memory);
        }
        self.memory.retire_table(body.frame);
    }
}
