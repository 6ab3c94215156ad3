//! The invariants of a guest, checked while nothing else runs: no entry shows what its host does not.
//!
//! 1. No entry is claimed, and every page that is shown lies in a slot.
//! 2. The host's entry shows the same frame.
//! 3. An entry allows stores only if it says that the host lets the guest store, and it says so only if the host's entry takes
//!    stores and the slot is not read-only.
//! 4. With the legacy MMU, the reverse map leads to the entry.
//!
//! A port that accounts for all frames also asks which are the guest's ([`Guest::for_each_frame`]).

use faultless_mm::Violation;
use faultless_paging::{ENTRIES, Entry, Frame, LEVELS, PAGE_SIZE, Page, Table};

use crate::format::SecondLevel;
use crate::guest::{Guest, GuestMachine, HostSpace};

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Calls `visit` with every frame that the guest itself uses. No operation of the guest is in progress.
    pub fn for_each_frame(&self, visit: &mut dyn FnMut(Frame)) {
        visit(self.frame());
        let slots = self.slots_now();
        visit(Frame(slots.frame));
        for body in slots.iter() {
            visit(body.frame);
            body.log.for_each_frame(self.machine(), visit);
            body.rmap.for_each_frame(self.machine(), visit);
        }
        self.for_each_table(self.root, LEVELS - 1, 0, &mut |frame, _, _| visit(frame));
    }

    /// Checks the invariants.
    ///
    /// # Errors
    /// The first violation, with the guest-physical address. No operation of the guest or its host is in progress.
    pub fn verify(&self) -> Result<(), Violation> {
        let mut result = Ok(());
        self.for_each_table(self.root, LEVELS - 1, 0, &mut |frame, level, first| {
            if level > 0 || result.is_err() {
                return;
            }
            // SAFETY: linked, and nothing is freed meanwhile.
            let table = unsafe { Table::at(self.machine(), frame) };
            for (page, entry) in (first..).zip(table.entries()) {
                result = result.and_then(|()| self.verify_entry(page, entry));
            }
        });
        result
    }

    fn verify_entry(&self, page: u64, entry: &Entry) -> Result<(), Violation> {
        let value = entry.load();
        let wrong = |rule| {
            Err(Violation {
                rule,
                address: page * PAGE_SIZE,
                value,
            })
        };
        if Self::FORMAT.is_claimed(value) {
            return wrong("a guest's entry is claimed at rest");
        }
        if !M::SecondLevel::has_page(value) {
            return Ok(());
        }
        let section = self.memory.enter();
        let slots = self.slots_now();
        let Some(slot) = slots.find(page) else {
            return wrong("a guest's entry lies in no slot");
        };
        let pages = self.space().host_pages();
        let host = pages.find(Page(slot.host_of(page)), &section);
        let shown = host.and_then(|host| host.get());
        let Some(shown) = shown.filter(|shown| shown.frame == Self::FORMAT.frame(value)) else {
            return wrong("a guest's entry shows a frame that its host does not");
        };
        let rights = match M::SecondLevel::is_tracked(value) {
            true => M::SecondLevel::restored(value),
            false => value,
        };
        if Self::FORMAT.is_writable(rights) && !M::SecondLevel::may_write(value) {
            return wrong("a guest's entry allows stores, and does not say that it may");
        }
        if M::SecondLevel::may_write(value) && (!shown.takes_stores || slot.is_read_only()) {
            return wrong("a guest's entry allows stores that its host does not");
        }
        if !self.options.tdp_mmu {
            let word = slot.rmap.get(self.machine(), page - slot.pages.start);
            let address = core::ptr::from_ref(entry).addr() as u64;
            if word.map(Entry::load) != Some(address) {
                return wrong("the reverse map does not lead to a guest's entry");
            }
        }
        Ok(())
    }

    /// Calls `visit` with every table, its level, and its first page.
    fn for_each_table(
        &self,
        frame: Frame,
        level: usize,
        first: u64,
        visit: &mut dyn FnMut(Frame, usize, u64),
    ) {
        visit(frame, level, first);
        if level == 0 {
            return;
        }
        // SAFETY: linked, and nothing is freed meanwhile.
        let table = unsafe { Table::at(self.machine(), frame) };
        let span = (ENTRIES as u64).pow(level as u32);
        for (number, value) in (0..).zip(table.entries().iter().map(Entry::load)) {
            if Self::FORMAT.is_table(value) {
                let below = Self::FORMAT.frame(value);
                self.for_each_table(below, level - 1, first + number * span, visit);
            }
        }
    }
}
