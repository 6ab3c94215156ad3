//! The texts of `/proc`, as Linux prints them.

use alloc::vec::Vec;
use core::fmt::{self, Write};

use arrayvec::ArrayString;

use crate::arch::percpu;
use crate::errno::{ENOMEM, Errno};
use crate::memory::{self, Counter, MapsEntry, USER_END, machine};
use crate::process;

/// One of the texts.
#[derive(Clone, Copy)]
pub enum Text {
    Maps,
    VmStat,
    MemInfo,
    CpuInfo,
}

/// The text at a path, if there is one.
pub fn find(path: &str) -> Option<Text> {
    let path = path.strip_prefix("/proc/")?;
    let own = path
        .strip_prefix("self/")
        .or_else(|| path.strip_prefix("100/"));
    match own.unwrap_or(path) {
        "maps" if own.is_some() => Some(Text::Maps),
        "vmstat" => Some(Text::VmStat),
        "meminfo" => Some(Text::MemInfo),
        "cpuinfo" => Some(Text::CpuInfo),
        _ => None,
    }
}

/// A text that grows fallibly.
struct Buffer(Vec<u8>);

impl Write for Buffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.try_reserve(text.len()).map_err(|_| fmt::Error)?;
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl Text {
    /// What it says now.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn make(self) -> Result<Vec<u8>, Errno> {
        let mut buffer = Buffer(Vec::new());
        let made = match self {
            Self::Maps => maps(&mut buffer),
            Self::VmStat => vmstat(&mut buffer),
            Self::MemInfo => meminfo(&mut buffer),
            Self::CpuInfo => cpuinfo(&mut buffer),
        };
        made.map(|()| buffer.0).map_err(|_| ENOMEM)
    }
}

/// The address space merges neighbours with equal attributes. Linux keeps what came from the
/// program's file, its zeroed rest and the heap apart, so lines are cut there.
fn maps(text: &mut Buffer) -> fmt::Result {
    let mut result = Ok(());
    process::space().maps(&mut |mut entry: MapsEntry| {
        let end = entry.end;
        while entry.start < end {
            entry.end = end.min(next_cut(entry.start));
            result = result.and(line(text, &entry));
            entry.start = entry.end;
        }
    });
    result
}

/// The next place behind an address where a line is cut.
fn next_cut(address: u64) -> u64 {
    let program = process::current().program();
    let parts = program.parts.iter().flat_map(|part| [part.start, part.end]);
    let heap = process::space().heap().0;
    parts
        .chain([heap])
        .filter(|&cut| cut > address)
        .min()
        .unwrap_or(u64::MAX)
}

fn line(text: &mut Buffer, entry: &MapsEntry) -> fmt::Result {
    let (heap_start, heap_end) = process::space().heap();
    let program = process::current().program();
    let part = program
        .parts
        .iter()
        .find(|part| part.start <= entry.start && entry.start < part.end);
    let (offset, name) = match part {
        Some(part) => (
            part.offset + entry.start - part.start,
            program.path.as_str(),
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
        // The initramfs: a device of its own with one file that matters.
        u8::from(part.is_some()),
        u8::from(part.is_some()),
    )?;
    match name {
        "" => writeln!(text, "{line}"),
        // Linux pads to column 73 before a name.
        name => writeln!(text, "{line:73}{name}"),
    }
}

fn vmstat(text: &mut Buffer) -> fmt::Result {
    let (_, free) = machine::sizes();
    writeln!(text, "nr_free_pages {}", free / 4096)?;
    for (name, counter) in [
        ("pgfault", Counter::Faults),
        ("pgmajfault", Counter::MajorFaults),
        ("speculative_pgfault", Counter::Spf),
        ("pgreuse", Counter::Reuses),
        ("nr_tlb_remote_flush", Counter::TlbRemoteFlush),
        (
            "nr_tlb_remote_flush_deferred",
            Counter::TlbRemoteFlushDeferred,
        ),
        (
            "nr_tlb_remote_flush_received",
            Counter::TlbRemoteFlushReceived,
        ),
        ("nr_tlb_local_flush_all", Counter::TlbLocalFlushAll),
        ("nr_tlb_local_flush_one", Counter::TlbLocalFlushOne),
    ] {
        writeln!(text, "{name} {}", memory::total(counter))?;
    }
    Ok(())
}

fn meminfo(text: &mut Buffer) -> fmt::Result {
    let (total, free) = machine::sizes();
    writeln!(text, "MemTotal:       {:8} kB", total >> 10)?;
    writeln!(text, "MemFree:        {:8} kB", free >> 10)?;
    writeln!(text, "MemAvailable:   {:8} kB", free >> 10)
}

fn cpuinfo(text: &mut Buffer) -> fmt::Result {
    for cpu in 0..percpu::count() {
        writeln!(text, "processor\t: {cpu}\n")?;
    }
    Ok(())
}
