//! `/proc/PID/maps`.
//!
//! The address space merges neighbours with equal attributes. Linux keeps what came from the
//! program's file, its zeroed rest and the heap apart, so lines are cut there.

use core::fmt::Write;

use arrayvec::ArrayString;

use super::Text;
use crate::errno::{ENOMEM, Errno};
use crate::exec::Program;
use crate::memory::{MapsEntry, USER_END};
use crate::process::Process;

/// A process's program and heap, by which lines are cut and named.
struct Names<'a> {
    program: &'a Program,
    heap: (u64, u64),
}

/// All lines; none of a process that is ending.
pub fn write(process: &Process, text: &mut Text) -> Result<(), Errno> {
    let Some(space) = process.space() else {
        return Ok(());
    };
    let program = process.program();
    let names = Names {
        program: &program,
        heap: space.heap(),
    };
    let mut result = Ok(());
    space.maps(&mut |mut entry: MapsEntry| {
        let end = entry.end;
        while entry.start < end {
            entry.end = end.min(names.next_cut(entry.start));
            result = result.and_then(|()| names.line(text, &entry));
            entry.start = entry.end;
        }
    });
    result
}

impl Names<'_> {
    /// The next place behind an address where a line is cut.
    fn next_cut(&self, address: u64) -> u64 {
        let parts = self.program.parts.iter();
        let ends = parts.flat_map(|part| [part.start, part.end]);
        ends.chain([self.heap.0])
            .filter(|&cut| cut > address)
            .min()
            .unwrap_or(u64::MAX)
    }

    fn line(&self, text: &mut Text, entry: &MapsEntry) -> Result<(), Errno> {
        let (heap_start, heap_end) = self.heap;
        let mut parts = self.program.parts.iter();
        let part = parts.find(|part| part.start <= entry.start && entry.start < part.end);
        let (offset, name) = match part {
            Some(part) => (
                part.offset + entry.start - part.start,
                self.program.path.as_str(),
            ),
            None if entry.end == USER_END => (0, "[stack]"),
            None if heap_start <= entry.start && entry.start < heap_end => (0, "[heap]"),
            None => (0, ""),
        };
        let flag = |set: bool, letter: char| if set { letter } else { '-' };
        // Long enough for two addresses and the rest.
        let mut line = ArrayString::<96>::new();
        write!(
            line,
            "{:08x}-{:08x} {}{}{}p {offset:08x} 00:{:02x} {} ",
            entry.start,
            entry.end,
            flag(entry.protection.read, 'r'),
            flag(entry.protection.write, 'w'),
            flag(entry.protection.execute, 'x'),
            // One file matters.
            u8::from(part.is_some()),
            u8::from(part.is_some()),
        )
        .map_err(|_| ENOMEM)?;
        match name {
            "" => text.line(format_args!("{line}")),
            // Linux pads to column 73 before a name.
            name => text.line(format_args!("{line:73}{name}")),
        }
    }
}
