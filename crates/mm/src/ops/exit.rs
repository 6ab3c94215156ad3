//! The end of an address space.

use core::ptr::NonNull;

use faultless_frames::FrameSource;
use faultless_paging::{EntryFormat, Frame, LEVELS, PAGE_SIZE, Pages, Table, table};
use faultless_trace::Counter;

use crate::machine::Machine;
use crate::memory::Memory;
use crate::space::AddressSpace;
use crate::tree::PAGES;

impl<M: Machine> AddressSpace<M> {
    /// Gives everything back. No CPU runs the space any more (its set is empty,
    /// each having dropped its translations), and owning it means that nobody
    /// else uses it: nothing is claimed, nothing waits for readers.
    pub fn destroy(self) {
        let end = self.layout.end.div_ceil(PAGE_SIZE);
        free_table(self.memory, self.root, LEVELS - 1, 0, end);
        let mut at = 0;
        while let Some(run) = self.tree.next(at) {
            // SAFETY: nobody else uses the tree; a mapping is freed with its last pages.
            if let Some(mapping) = unsafe { run.word.mapping() }
                && mapping.remove_pages(run.pages.len())
            {
                self.memory.free_mapping(NonNull::from(mapping));
            }
            at = Pages::new(at, run.pages.end).end.min(PAGES);
        }
        self.tree.destroy(self.memory);
    }
}

/// Frees a table that begins at `page`, with all pages and tables below it that
/// lie before `end`.
fn free_table<M: Machine>(memory: &Memory<M>, frame: Frame, level: usize, page: u64, end: u64) {
    let format = M::Format::FORMAT;
    let machine = memory.machine();
    let source = machine.frames();
    let cpu = machine.cpu();
    // SAFETY: a table of ours that nobody else uses.
    let entries = unsafe { Table::at(machine, frame) };
    for (i, entry) in entries.entries().iter().enumerate() {
        let start = page + i as u64 * table::span(level);
        if start >= end {
            break;
        }
        let value = entry.load();
        if value == 0 {
            continue;
        }
        let below = format.frame(value);
        if level > 0 {
            free_table(memory, below, level - 1, start, end);
        } else if below != source.zero_frame() && source.descriptor(below).unmap() {
            source.free(cpu, below);
        }
    }
    if level < LEVELS - 1 {
        memory.count(Counter::TableFree);
    }
    source.free(cpu, frame);
}
