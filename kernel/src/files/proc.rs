//! The texts of `/proc`, as Linux prints them.

use alloc::vec::Vec;
use core::fmt::{self, Write};

use crate::arch::percpu;
use crate::errno::{ENOMEM, Errno};
use crate::memory::{self, Counter, MapsEntry, USER_END, machine};
use crate::process;

/// A text that grows fallibly.
struct Text(Vec<u8>);

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.try_reserve(text.len()).map_err(|_| fmt::Error)?;
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// The text at a path, if there is one.
pub fn text(path: &str) -> Option<Result<Vec<u8>, Errno>> {
    let path = path.strip_prefix("/proc/")?;
    let mut text = Text(Vec::new());
    let own = path
        .strip_prefix("self/")
        .or_else(|| path.strip_prefix("100/"));
    let written = match own.unwrap_or(path) {
        "maps" if own.is_some() => maps(&mut text),
        "vmstat" => vmstat(&mut text),
        "meminfo" => meminfo(&mut text),
        "cpuinfo" => cpuinfo(&mut text),
        _ => return None,
    };
    Some(written.map(|()| text.0).map_err(|_| ENOMEM))
}

fn maps(text: &mut Text) -> fmt::Result {
    let (heap_start, heap_end) = process::space().heap();
    let mut result = Ok(());
    process::space().maps(&mut |entry: MapsEntry| {
        let flag = |set: bool, letter: char| if set { letter } else { '-' };
        let mut line = Line::default();
        let _ = write!(
            line,
            "{:08x}-{:08x} {}{}{}p 00000000 00:00 0 ",
            entry.start,
            entry.end,
            flag(entry.protection.read, 'r'),
            flag(entry.protection.write, 'w'),
            flag(entry.protection.execute, 'x'),
        );
        let name = if entry.end == USER_END {
            "[stack]"
        } else if entry.start < heap_end && heap_start < entry.end && heap_start != heap_end {
            "[heap]"
        } else {
            ""
        };
        let used = line.0.len();
        // Linux pads to column 73 before a name.
        let written = match name {
            "" => writeln!(text, "{}", line.0),
            name => writeln!(
                text,
                "{}{:width$}{name}",
                line.0,
                "",
                width = 73 - used.min(73)
            ),
        };
        result = result.and(written);
    });
    result
}

/// A line's beginning: long enough for two addresses.
#[derive(Default)]
struct Line(arrayvec::ArrayString<96>);

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.try_push_str(text).map_err(|_| fmt::Error)
    }
}

fn vmstat(text: &mut Text) -> fmt::Result {
    let (_, free) = machine::sizes();
    writeln!(text, "nr_free_pages {}", free / 4096)?;
    for (name, counter) in [
        ("pgfault", Counter::Faults),
        ("pgmajfault", Counter::MajorFaults),
        ("speculative_pgfault", Counter::Spf),
        ("pgreuse", Counter::Reuses),
        ("nr_tlb_remote_flush", Counter::TlbRemoteFlush),
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

fn meminfo(text: &mut Text) -> fmt::Result {
    let (total, free) = machine::sizes();
    writeln!(text, "MemTotal:       {:8} kB", total >> 10)?;
    writeln!(text, "MemFree:        {:8} kB", free >> 10)?;
    writeln!(text, "MemAvailable:   {:8} kB", free >> 10)
}

fn cpuinfo(text: &mut Text) -> fmt::Result {
    for cpu in 0..percpu::count() {
        writeln!(text, "processor\t: {cpu}\n")?;
    }
    Ok(())
}
