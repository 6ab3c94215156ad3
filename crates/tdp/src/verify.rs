//! The invariants of a guest, checked while nothing else runs: no entry shows what its host does not.
//!
//! 1. No entry is claimed, and every page that is shown lies in a slot.
//! 2. The host's entry shows the same frame. For a huge entry, that of the host's huge page does, or those of all small pages do.
//! 3. An entry allows stores only if it says that the host lets the guest store, and it says so only if the host's entry takes
//!    stores and the slot is not read-only.
//! 4. With the legacy MMU, the reverse map leads to the entry.
//!
//! A port that accounts for all frames also asks which are the guest's ([`Guest::for_each_frame`]).

use faultless_mm::{HostPage, Violation};
use faultless_paging::{ENTRIES, Entry, Frame, LEVELS, PAGE_SIZE, Page, Pages, Table};

use crate::format::SecondLevel;
use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::huge::HUGE_LEVEL;
use crate::slots::slot::SlotBody;
use crate::tables::Spot;

fn violation(rule: &'static str, page: u64, value: u64) -> Violation {
    Violation {
        rule,
        address: page * PAGE_SIZE,
        value,
    }
}

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
            if level > HUGE_LEVEL || result.is_err() {
                return;
            }
            // SAFETY: linked, and nothing is freed meanwhile.
            let table = unsafe { Table::at(self.machine(), frame) };
            let span = (ENTRIES as u64).pow(level as u32);
            for (number, entry) in (0..).zip(table.entries()) {
                let start = first + number * span;
                let pages = Pages::new(start, start + span);
                result = result.and_then(|()| self.verify_entry(Spot::new(entry, pages)));
            }
        });
        result
    }

    fn verify_entry(&self, spot: Spot<'_>) -> Result<(), Violation> {
        let value = spot.entry.load();
        let wrong = |rule| Err(violation(rule, spot.first(), value));
        if Self::FORMAT.is_claimed(value) {
            return wrong("a guest's entry is claimed at rest");
        }
        if !spot.has_page::<M::SecondLevel>(value) {
            return Ok(());
        }
        let section = self.memory.enter();
        let slots = self.slots_now();
        let slot = slots.find(spot.first());
        let Some(slot) = slot.filter(|slot| slot.pages.and(spot.pages()) == spot.pages()) else {
            return wrong("a guest's entry lies in no slot");
        };
        if !self.options.tdp_mmu {
            let number = spot.first() - slot.pages.start;
            let word = slot.rmap.get(self.machine(), number);
            if word.map(Entry::load) != Some(Self::word_of(spot)) {
                return wrong("the reverse map does not lead to a guest's entry");
            }
        }
        let pages = self.space().host_pages();
        let find = |page| pages.find(Page(slot.host_of(page)), &section);
        if !spot.is_huge() {
            let shown = find(spot.first()).and_then(|host| host.get());
            return self.verify_page(slot, spot.first(), value, shown);
        }
        let whole = find(spot.first()).and_then(|host| host.whole());
        if let Some(whole) = whole {
            return self.verify_page(slot, spot.first(), value, whole.get());
        }
        (0..)
            .zip(spot.first()..spot.pages().end)
            .try_for_each(|(number, page)| {
                let part = Self::FORMAT.part(value, number);
                self.verify_page(slot, page, part, find(page).and_then(|host| host.get()))
            })
    }

    /// Checks what an entry shows of its first page, or of the only one.
    fn verify_page(
        &self,
        slot: &SlotBody,
        page: u64,
        value: u64,
        shown: Option<HostPage>,
    ) -> Result<(), Violation> {
        let wrong = |rule| Err(violation(rule, page, value));
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
