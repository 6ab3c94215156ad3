//! Carrying pages from one place of an address space to another (`mremap`).
//!
//! Neither place admits new claims: the source's slots are zapping or replacing, the
//! destination's replacing. Every entry is taken out of the source, late claims
//! waited for (rule R1), and put into the destination *hidden*, where no hardware
//! uses it; then the source is flushed, once, and only then does the destination
//! become present (rule R2): no CPU ever reaches a page by both addresses. A fork may come between
//! any two tables ([`crate::lock::moves`]).
//!
//! Claims that come late and are withdrawn again are seen in both places all the while: of
//! faults that have found what was mapped there before, and of walks of a store's mappings,
//! which validate after their claims. So entries are written by compare-and-swap alone, and
//! a claim is waited for: who withdraws it writes back what it has seen.
//!
//! Tables are put under the destination before anything is taken, because that can
//! fail and carrying cannot; by then no fault puts anything into the source.
//!
//! Written lines: both places' entries; the descriptors of pages that are this
//! space's alone, which say where the page is.

use faultless_frames::FrameSource;
use faultless_paging::{ENTRIES, Entry, Gather, Page, Pages, Protection, Walk, walk};
use faultless_sync::{Backoff, Mutant, cond_resched, mutant};
use faultless_trace::Counter;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::lock::moves::Move;
use crate::space::{AddressSpace, Note};
use crate::table::rss::RssKind;

/// Tables of the lowest level between two looks whether somebody else should run.
const TABLES: u64 = 32;

impl<M: Machine> AddressSpace<M> {
    /// Puts tables under the pages at `target` that pages of `source` will go to.
    ///
    /// # Errors
    /// `ENOMEM`; tables that are there stay, and are freed with what is mapped beside them.
    pub(crate) fn prepare_tables(&self, source: Pages, target: u64) -> Result<(), Errno> {
        let mut result = Ok(());
        let mut seen = 0u64;
        // SAFETY below: of tables over what is mapped, or reserved, none is freed (rule R5).
        self.for_each_table(source, &mut |table, part| {
            seen += 1;
            if seen.is_multiple_of(TABLES) {
                // Outside a section, and with no table claimed.
                cond_resched(self.machine());
            }
            let base = part.start & !(ENTRIES as u64 - 1);
            let (first, end) = ((part.start - base) as usize, (part.end - base) as usize);
            if result.is_err() || table.next_used(first, end).is_none() {
                return;
            }
            let to = Pages::new(
                part.start - source.start + target,
                part.end - source.start + target,
            );
            // A table's pages may go to two.
            result = self
                .table_under(to.start)
                .and_then(|()| self.table_under(to.end - 1));
        });
        result
    }

    /// Puts a table of the lowest level over `page`, if there is none. The page's slot is not empty.
    fn table_under(&self, page: u64) -> Result<(), Errno> {
        let mut backoff = Backoff::new();
        loop {
            // SAFETY: the page's slot is not empty, which precedes the caller's fence: the tables
            // over it are not freed (rule R5).
            match unsafe { walk::<M::Format, M>(self.machine(), self.root, Page(page)) } {
                Walk::Leaf { .. } => return Ok(()),
                Walk::Busy => backoff.turn(self.machine()),
                Walk::Missing { entry, .. } => {
                    let table = self.memory.allocate_table()?;
                    let interrupts = self.machine().interrupts_off();
                    let cpu = self.machine().cpu();
                    match entry.claim::<M::Format>(0, cpu) {
                        Ok(claim) => {
                            claim.publish(self.with_tlb_owner(Self::FORMAT.table(table)));
                            self.rss.came(cpu, RssKind::Table);
                            self.memory.count(Counter::TableAlloc);
                        }
                        // A fault beside these pages was quicker.
                        Err(_) => self.machine().frames().free(cpu, table),
                    }
                    self.machine().interrupts_restore(interrupts);
                }
            }
        }
    }

    /// Carries the pages of a move's source to its target, where nothing is. They get the target's
    /// protection. In turns ([`crate::lock::moves`]), with no range.
    pub(crate) fn carry(&self, record: &Move) {
        let mut gather = Gather::new();
        let mut carried: Option<(u64, u64)> = None;
        self.in_turns(record.source, |turn| {
            self.for_each_entry(turn, &mut |entry, page| {
                if let Some(value) = self.take_out(entry) {
                    let to = record.goes_to(page);
                    self.gather(value, page, &mut gather);
                    let hidden = match Self::FORMAT.is_guard(value) {
                        true => value,
                        false => Self::FORMAT.with_protection(value, Protection::default(), false),
                    };
                    self.put(to, hidden);
                    carried = Some((carried.map_or(to, |(first, _)| first), to));
                }
            });
            record.note(turn.end, &gather, self.machine());
        });
        // A fork that comes between flushes this, too, and waits for nobody.
        self.flush(&mut gather);
        let turn = self.move_turn();
        record.note(record.source.end, &gather, self.machine());
        drop(turn);
        if let Some((first, last)) = carried {
            self.in_turns(Pages::new(first, last + 1), |turn| {
                self.for_each_entry(turn, &mut |entry, page| {
                    self.show_carried(record, entry, page)
                });
            });
        }
    }

    /// Calls `act` with the pages of each table over `pages`, in a turn, and in a section.
    fn in_turns(&self, pages: Pages, mut act: impl FnMut(Pages)) {
        let mut at = self.first_table(pages.start, pages.end);
        while at < pages.end {
            let end = ((at + ENTRIES as u64) & !(ENTRIES as u64 - 1)).min(pages.end);
            let turn = self.move_turn();
            let section = self.memory.enter();
            act(Pages::new(at, end));
            drop(section);
            drop(turn);
            self.machine().poll();
            at = self.first_table(end, pages.end);
            if at < pages.end {
                cond_resched(self.machine());
            }
        }
    }

    /// Lets hardware use what was carried to `page`.
    fn show_carried(&self, record: &Move, entry: &Entry, page: u64) {
        let format = Self::FORMAT;
        self.change(entry, |value| {
            if value == 0 || format.is_guard(value) {
                // Nothing has moved there, but for a claim that was withdrawn; or a
                // guard has, which stays what it is.
                return value;
            }
            let own = self.is_exclusive(value);
            match self.counted(value) {
                // Nobody else looks at it before it is published (rule R7).
                Some(descriptor) if own => descriptor.move_to(page),
                // What others have at the old place has to be looked for here.
                Some(_) => self.note(Note::MOVED),
                None => {}
            }
            self.shown(record, value, own || record.shared)
        });
    }

    /// What an entry holds where it goes.
    fn shown(&self, record: &Move, value: u64, write: bool) -> u64 {
        // What was moved counts as written, as on Linux: who watches the old place
        // does not know the new one.
        let value = value | Self::FORMAT.soft_dirty;
        Self::FORMAT.with_protection(value, record.protection, write)
    }

    /// What a child's entry holds of what its parent's does, or did, at either place.
    pub(crate) fn shown_to_child(&self, record: &Move, value: u64) -> u64 {
        match value == 0 || Self::FORMAT.is_guard(value) {
            true => value,
            false => self.shown(record, value, false),
        }
    }

    /// For a fork: lets no store through to what moves by its old address.
    pub(crate) fn stop_stores(&self, record: &Move) {
        if record.shared || mutant(Mutant::MovedStoresNotStopped) {
            return;
        }
        let mut gather = record.unflushed(self.machine());
        let section = self.memory.enter();
        self.for_each_entry(record.left(self.machine()), &mut |entry, page| {
            let before = self.change(entry, |value| Self::FORMAT.without_write(value));
            if before != Self::FORMAT.without_write(before) {
                self.gather(before, page, &mut gather);
            }
        });
        drop(section);
        self.flush(&mut gather);
    }

    /// Empties an entry; what it held.
    fn take_out(&self, entry: &Entry) -> Option<u64> {
        let value = self.change(entry, |_| 0);
        (value != 0).then_some(value)
    }

    /// Puts `to` of what an entry holds into it; what that was. A claim is waited for.
    fn change(&self, entry: &Entry, to: impl Fn(u64) -> u64) -> u64 {
        let mut backoff = Backoff::new();
        loop {
            let value = entry.load();
            if Self::FORMAT.is_claimed(value) && !mutant(Mutant::ClaimsNotAwaited) {
                backoff.turn(self.machine());
                continue;
            }
            let new = to(value);
            if new == value || entry.replace(value, new).is_ok() {
                return value;
            }
        }
    }

    /// Writes the entry of a page that has a table, and where nothing is. Who frees tables beside
    /// it may have claimed the table for a look.
    fn put(&self, page: u64, value: u64) {
        let mut backoff = Backoff::new();
        loop {
            // SAFETY: in the caller's section.
            match unsafe { walk::<M::Format, M>(self.machine(), self.root, Page(page)) } {
                Walk::Leaf { entry, .. } => {
                    let before = self.change(entry, |_| value);
                    debug_assert_eq!(before, 0, "a page is where another one moves to");
                    return;
                }
                Walk::Busy => backoff.turn(self.machine()),
                Walk::Missing { .. } => {
                    debug_assert!(false, "a page moves to where no table is");
                    return;
                }
            }
        }
    }
}
