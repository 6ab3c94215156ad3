//! Ends an address space.

use faultless_frames::FrameSource;
use faultless_paging::{
    ENTRIES, Entry, EntryFormat, Frame, LEVELS, PAGE_SIZE, Pages, Pte, Table, table,
};
use faultless_sync::{Mutant, cond_resched, mutant};
use faultless_trace::Counter;

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::rmap::anon::{await_visits, leave_list};
use crate::rmap::file::leave_objects;
use crate::space::OwnedSpace;
use crate::table::huge::free_huge_page;
use crate::tree::{Run, Tree};

/// Entries in one cache line.
const LINE: usize = 8;

/// Tables of the lowest level between two checks for a pending reschedule.
const TABLES: usize = 32;

impl<M: Machine> OwnedSpace<M> {
    /// Frees everything. No CPU runs the space any more: its set of CPUs is empty, and each CPU has dropped its
    /// translations and ended its walks. Only the owner uses it: no entry is claimed, and no reader is waited for. Returns how many
    /// pages were present, without the shared zero page and devices' pages.
    pub fn destroy(self) -> u64 {
        // Objects first: a migration holds the lock of the list of spaces, and may have found this space in an
        // object's list. Once the space is out of the objects' lists, to wait for that lock is to wait for such
        // migrations.
        self.end_all_reservations();
        leave_objects(&self);
        leave_list(&self);
        if !mutant(Mutant::VisitsNotAwaited) {
            await_visits(&self);
        }
        let end = self.layout().end.div_ceil(PAGE_SIZE);
        let counted = self.resident();
        let mut mapped = Mapped::of(self.tree());
        let root = (self.tables().root, LEVELS - 1);
        let present = free_table(self.memory(), &mut mapped, root, 0, end);
        debug_assert_eq!(present, counted, "what is in memory was not counted right");
        let memory = self.memory();
        memory.commit(self.totals().committed.wrapping_neg());
        self.take_apart();
        present
    }
}

/// What is mapped, walked once in ascending order. Only there can pages be present: a small process maps a few
/// pages in each of many tables.
struct Mapped<'t> {
    tree: &'t Tree,
    run: Option<Run>,
}

impl<'t> Mapped<'t> {
    fn of(tree: &'t Tree) -> Self {
        let run = tree.next(0);
        Self { tree, run }
    }

    /// Returns the first mapped pages in `pages`, which begin no earlier than those asked for before.
    fn first_in(&mut self, pages: Pages) -> Option<Pages> {
        while let Some(run) = self.run {
            if run.pages.end > pages.start {
                let start = run.pages.start.max(pages.start);
                let end = run.pages.end.min(pages.end);
                return (start < end).then(|| Pages::new(start, end));
            }
            self.run = self.tree.next(run.pages.end);
        }
        None
    }
}

/// Frees a table, given with its level, that begins at `page`, with all pages and tables below it that lie
/// before `end`. Returns how many pages there were.
fn free_table<M: Machine>(
    memory: &Memory<M>,
    mapped: &mut Mapped<'_>,
    (frame, level): (Frame, usize),
    page: u64,
    end: u64,
) -> u64 {
    let format = M::Format::FORMAT;
    let machine = memory.machine();
    let source = machine.frames();
    // SAFETY: a table of the space, which nothing else uses.
    let table = unsafe { Table::at(machine, frame) };
    let size = table::span(level);
    let entries = (end - page).div_ceil(size).min(ENTRIES as u64) as usize;
    let mut pages = 0;
    if level == 0 {
        let mut rest = Pages::new(page, page + entries as u64);
        while let Some(part) = mapped.first_in(rest) {
            let [first, last] = [part.start, part.end].map(|at| (at - page) as usize);
            pages += free_pages(memory, &table.entries()[first..last]);
            rest.start = part.end;
        }
    } else {
        let mut at = 0;
        while let Some(number) = table.next_used(at, entries) {
            at = number + 1;
            if level == 1 && at.is_multiple_of(TABLES) {
                cond_resched(machine);
            }
            let value = table.entries()[number].load();
            if format.is_huge(value) {
                pages += free_huge_page(memory, format.frame(value));
                continue;
            }
            let below = format.frame(value);
            let start = page + number as u64 * size;
            pages += free_table(memory, mapped, (below, level - 1), start, end);
        }
    }
    if level < LEVELS - 1 {
        memory.count(Counter::TableFree);
    }
    source.free(machine.cpu(), frame);
    pages
}

/// Frees the pages of entries at the lowest level. Returns how many there were.
#[inline(never)]
fn free_pages<M: Machine>(memory: &Memory<M>, entries: &[Entry]) -> u64 {
    let (machine, format) = (memory.machine(), M::Format::FORMAT);
    let (source, cpu) = (machine.frames(), machine.cpu());
    let zero = source.zero_frame();
    let mut pages = 0;
    for line in entries.chunks(LINE) {
        // Tables are mostly full, or mostly empty.
        if line.iter().fold(0, |all, entry| all | entry.load()) == 0 {
            continue;
        }
        for entry in line {
            let value = entry.load();
            if value == 0 || !format.is_present(value) && drop_pageless(memory, value) {
                continue;
            }
            let frame = format.frame(value);
            if format.is_device(value) || frame == zero {
                continue;
            }
            pages += 1;
            let page = source.descriptor(frame);
            if !page.is_sole_use() && format.is_used(value) {
                // It stays, and no entry says so any more.
                page.mark_used();
            }
            if page.unmap() {
                source.free(cpu, frame);
            }
        }
    }
    pages
}

/// Drops what an entry without a page in memory has: the use of a swap slot, or nothing. Returns whether it is one.
#[cold]
#[inline(never)]
fn drop_pageless<M: Machine>(memory: &Memory<M>, value: u64) -> bool {
    match M::Format::FORMAT.decode(value, 0) {
        Pte::Swap(swapped) => {
            memory.drop_slot_use(&swapped);
            true
        }
        Pte::Hidden(_) => false,
        _ => true,
    }
}
