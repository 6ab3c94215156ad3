//! `/proc/PID/{stat,statm,status,limits}`: the process in numbers.

use core::fmt::{self, Write};

use arrayvec::ArrayString;

use super::{Text, processes};
use crate::errno::Errno;
use crate::memory::{Rss, VmStats};
use crate::process::Process;
use crate::process::usage::{self, Usage};
use crate::sched;

/// A thread's name; bytes that are not UTF-8 show as `?`.
pub struct Printable([u8; 16]);

/// The name of a process.
pub fn printable(number: u32) -> Printable {
    Printable(processes::name(number))
}

impl fmt::Display for Printable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.0.iter().position(|&byte| byte == 0);
        let name = &self.0[..length.unwrap_or(self.0.len())];
        for piece in name.utf8_chunks() {
            f.write_str(piece.valid())?;
            f.write_str(if piece.invalid().is_empty() { "" } else { "?" })?;
        }
        Ok(())
    }
}

/// Pages of a process's memory; none if it has ended. All counts are kept up to date, so nothing here takes
/// longer for a larger process.
#[derive(Default)]
struct Sizes {
    totals: VmStats,
    rss: Rss,
    /// Pages of the program's file, from the first to the last executable byte.
    code: u64,
    heap: u64,
}

fn sizes(process: Option<&Process>) -> Sizes {
    let Some((process, space)) = process.and_then(|process| Some((process, process.space()?)))
    else {
        return Sizes::default();
    };
    let (start, end) = process.program().code;
    Sizes {
        totals: space.totals(),
        rss: space.rss(),
        code: end.div_ceil(4096) - start / 4096,
        heap: space.heap().0,
    }
}

pub fn statm(process: &Process, text: &mut Text) -> Result<(), Errno> {
    let sizes = sizes(Some(process));
    let (totals, rss) = (sizes.totals, sizes.rss);
    text.line(format_args!(
        "{} {} {} {} 0 {} 0",
        totals.mapped,
        rss.resident(),
        rss.file + rss.shared_memory,
        sizes.code,
        totals.data + totals.stack
    ))
}

/// Writes the memory lines of `status`, in the order of Linux.
fn memory(sizes: &Sizes, text: &mut Text) -> Result<(), Errno> {
    let (totals, rss) = (&sizes.totals, &sizes.rss);
    let own_code = sizes.code.min(totals.code);
    for (name, pages) in [
        ("VmPeak", totals.peak),
        ("VmSize", totals.mapped),
        ("VmLck", totals.locked),
        ("VmPin", 0),
        ("VmHWM", rss.peak),
        ("VmRSS", rss.resident()),
        ("RssAnon", rss.anonymous),
        ("RssFile", rss.file),
        ("RssShmem", rss.shared_memory),
        ("VmData", totals.data),
        ("VmStk", totals.stack),
        ("VmExe", own_code),
        ("VmLib", totals.code - own_code),
        ("VmPTE", rss.tables),
        ("VmSwap", rss.swapped),
    ] {
        text.line(format_args!("{name}:\t{:8} kB", pages * 4))?;
    }
    Ok(())
}

pub fn stat(number: u32, text: &mut Text) -> Result<(), Errno> {
    let kin = processes::kin(number)?;
    let process = processes::find(number).ok();
    let sizes = sizes(process.as_deref());
    // The calling thread is charged up to now; other threads, up to when they last left a CPU.
    usage::charge(sched::current());
    let used = process.as_deref().map(usage::of).unwrap_or_default();
    let children = match process.as_deref() {
        Some(process) => *process.children_usage.lock(),
        None => Usage::default(),
    };
    let threads = processes::thread_count(number);
    text.add(format_args!(
        "{number} ({}) {} {} {} {} 0 -1 0 {} {} {} {} ",
        printable(number),
        kin.state,
        kin.parent,
        kin.group,
        kin.session,
        used.minor_faults,
        children.minor_faults,
        used.major_faults,
        children.major_faults,
    ))?;
    // Times of the process, in hundredths of a second, and of its children; priority, nice,
    // threads, timer, start; sizes and their limit.
    text.add(format_args!(
        "{} 0 {} 0 20 0 {threads} 0 0 {} {} {} ",
        used.ran / 10_000_000,
        children.ran / 10_000_000,
        sizes.totals.mapped * 4096,
        sizes.rss.resident(),
        u64::MAX,
    ))?;
    // Code, stack, registers, signals, waiting, swap, exit signal, CPU, and the rest.
    let heap = sizes.heap;
    text.line(format_args!(
        "0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 {heap} 0 0 0 0 0"
    ))
}

pub fn status(number: u32, text: &mut Text) -> Result<(), Errno> {
    let kin = processes::kin(number)?;
    let process = processes::find(number).ok();
    let sizes = sizes(process.as_deref());
    let state = match kin.state {
        'R' => "R (running)",
        'Z' => "Z (zombie)",
        'T' => "T (stopped)",
        't' => "t (tracing stop)",
        _ => "S (sleeping)",
    };
    text.line(format_args!("Name:\t{}", printable(number)))?;
    if let Some(process) = &process {
        text.line(format_args!("Umask:\t{:04o}", process.place.mask()))?;
    }
    text.line(format_args!("State:\t{state}"))?;
    text.line(format_args!("Tgid:\t{number}\nNgid:\t0\nPid:\t{number}"))?;
    text.line(format_args!(
        "PPid:\t{}\nTracerPid:\t{}",
        kin.parent, kin.tracer
    ))?;
    text.line(format_args!("Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0"))?;
    if let Some(process) = &process {
        text.line(format_args!(
            "FDSize:\t{}",
            process.descriptors.with(|table| table.size())
        ))?;
        memory(&sizes, text)?;
    }
    text.line(format_args!(
        "Threads:\t{}",
        processes::thread_count(number)
    ))?;
    let used = process.as_deref().map(usage::of).unwrap_or_default();
    text.line(format_args!(
        "voluntary_ctxt_switches:\t{}\nnonvoluntary_ctxt_switches:\t{}",
        used.slept, used.preempted
    ))
}

/// Names and units, in the order of the resources' numbers.
const LIMITS: [(&str, &str); 16] = [
    ("Max cpu time", "seconds"),
    ("Max file size", "bytes"),
    ("Max data size", "bytes"),
    ("Max stack size", "bytes"),
    ("Max core file size", "bytes"),
    ("Max resident set", "bytes"),
    ("Max processes", "processes"),
    ("Max open files", "files"),
    ("Max locked memory", "bytes"),
    ("Max address space", "bytes"),
    ("Max file locks", "locks"),
    ("Max pending signals", "signals"),
    ("Max msgqueue size", "bytes"),
    ("Max nice priority", ""),
    ("Max realtime priority", ""),
    ("Max realtime timeout", "us"),
];

pub fn limits(process: &Process, text: &mut Text) -> Result<(), Errno> {
    let (soft, hard) = ("Soft Limit", "Hard Limit");
    text.line(format_args!(
        "{:25} {soft:20} {hard:20} {:10}",
        "Limit", "Units"
    ))?;
    let limits = *process.limits.lock();
    for (resource, (name, unit)) in (0..).zip(LIMITS) {
        let [soft, hard] = limits
            .get(resource)?
            .map(|limit| Limit(Some(limit).filter(|&limit| limit != u64::MAX)));
        text.line(format_args!("{name:25} {soft:20} {hard:20} {unit:10}"))?;
    }
    Ok(())
}

struct Limit(Option<u64>);

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(limit) = self.0 else {
            return f.pad("unlimited");
        };
        // Formatted first: only strings are padded on the right by default.
        let mut decimal = ArrayString::<20>::new();
        write!(decimal, "{limit}")?;
        f.pad(&decimal)
    }
}
