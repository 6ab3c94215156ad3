//! The end of an address space.

use faultless_frames::FrameSource;
use faultless_paging::{ENTRIES, EntryFormat, Frame, LEVELS, PAGE_SIZE, Table, table};
use faultless_trace::Counter;

use crate::machine::Machine;
use crate::memory::Memory;
use crate::space::AddressSpace;

impl<M: Machine> AddressSpace<M> {
    /// Gives everything back. No CPU runs the space any more (its set is empty,
    /// each having dropped its translations), and owning it means that nobody
    /// else uses it: nothing is claimed, nothing waits for readers.
    pub fn destroy(self) {
        let end = self.layout.end.div_ceil(PAGE_SIZE);
        free_table(self.memory, self.root, LEVELS - 1, 0, end);
        self.tree.destroy(self.memory);
    }
}

/// Entries that are looked at together: most tables are mostly empty.
const GROUP: usize = 8;

/// Frees a table that begins at `page`, with all pages and tables below it that
/// lie before `end`.
fn free_table<M: Machine>(memory: &Memory<M>, frame: Frame, level: usize, page: u64, end: u64) {
    let format = M::Format::FORMAT;
    let machine = memory.machine();
    let source = machine.frames();
    let cpu = machine.cpu();
    let zero = source.zero_frame();
    // SAFETY: a table of ours that nobody else uses.
    let entries = unsafe { Table::at(machine, frame) }.entries();
    let used = (end - page).div_ceil(table::span(level));
    let used = &entries[..used.min(ENTRIES as u64) as usize];
    for (number, group) in used.chunks(GROUP).enumerate() {
        if group.iter().fold(0, |all, e| all | e.load_relaxed()) == 0 {
            continue;
        }
        for (i, entry) in (number * GROUP..).zip(group) {
            let value = entry.load();
            if value == 0 {
                continue;
            }
            let below = format.frame(value);
            if level > 0 {
                let start = page + i as u64 * table::span(level);
                free_table(memory, below, level - 1, start, end);
            } else if below != zero && source.descriptor(below).unmap() {
                source.free(cpu, below);
            }
        }
    }
    if level < LEVELS - 1 {
        memory.count(Counter::TableFree);
    }
    source.free(cpu, frame);
}
