//! Events and latencies, if the run file asks for them.
//!
//! Each CPU records into its own block of memory (`faultless_trace::Tracer`). The kernel does not export
//! events: the command that started the machine has the machine's memory mapped. The control channel tells it
//! where the blocks are, and it reads the rings while they are written. Latencies are in the report.

use core::fmt::Write;

use faultless_sync::atomic::Local;
use faultless_trace::{Event, Kind, Latency, Mask, Measure, Switch, Tracer};

use crate::arch::{paging, percpu, time};
use crate::console::{CONTROL, Port};
use crate::memory::Counter;
use crate::memory::machine::{self, Purpose, memory, try_memory};
use crate::sched::thread::Thread;

/// What to record.
#[derive(Clone, Copy, Default)]
pub struct Wish {
    pub mask: Mask,
    /// Events that each CPU's ring should hold.
    pub events: usize,
}

/// The largest block that the frame allocator gives: 4 MiB.
const LARGEST: u32 = 10;
/// The value of [`start`] while nothing is recorded.
const OFF: u64 = u64::MAX;

/// Gives every CPU memory to record in, and turns recording on; before the program begins.
///
/// # Errors
/// A line that says what is wrong.
pub fn begin(wish: &Wish) -> Result<(), &'static str> {
    if wish.mask == Mask::NONE {
        return Ok(());
    }
    if !cfg!(feature = "events") {
        return Err("this kernel is built without events: `record=` cannot be had");
    }
    let mut out = Port(CONTROL);
    let _ = write!(out, "trace [");
    for cpu in 0..percpu::count() {
        let (physical, words) = allocate(wish)?;
        memory().cpus()[cpu as usize]
            .tracer()
            .begin(words, wish.mask);
        let separator = if cpu == 0 { "" } else { "," };
        let _ = write!(out, "{separator}[{physical},{}]", words.len());
    }
    let _ = writeln!(out, "]");
    Ok(())
}

/// Allocates a block for one CPU; returns its physical address and its words.
fn allocate(wish: &Wish) -> Result<(u64, &'static [Local]), &'static str> {
    let events = if wish.mask.has_events() {
        wish.events.min(1 << 20)
    } else {
        0
    };
    let bytes = Tracer::words(events) * size_of::<Local>();
    let order = bytes.div_ceil(4096).next_power_of_two().ilog2();
    let order = order.min(LARGEST);
    let none = "out of memory: no room to record events";
    let physical = machine::allocate_block(order, Purpose::Trace).ok_or(none)?;
    let words = (4096usize << order) / size_of::<Local>();
    let at = paging::physical_to_virtual(physical).cast::<Local>();
    // SAFETY: The block is this function's alone, mapped, aligned, and never given back.
    let words = unsafe {
        (0..words).for_each(|word| at.add(word).write(Local::new(0)));
        core::slice::from_raw_parts(at, words)
    };
    Ok((physical, words))
}

/// The start time of an event that begins now; for [`end`].
#[inline]
pub fn start() -> u64 {
    if Tracer::any_is_on() {
        time::now()
    } else {
        OFF
    }
}

/// Records something that began at `start` and ends now.
#[inline]
pub fn end(kind: Kind, start: u64, address: u64, value: u64) {
    if start != OFF {
        record(Event::slice(kind, start, time::now(), address, value));
    }
}

/// Records that something happens now.
#[inline]
pub fn instant(kind: Kind, address: u64, value: u64) {
    end(kind, start(), address, value);
}

/// Records that this CPU switches to another thread.
#[inline]
pub fn switch(to: &Thread) {
    crate::memory::count(Counter::ContextSwitches, 1);
    let now = start();
    if now == OFF {
        return;
    }
    let to = match to.id() {
        0 => Switch::idle(),
        id => Switch {
            process: to.process_id(),
            thread: id,
            name: to.name.get(),
        },
    };
    record(Event::switch(now, to));
}

#[cold]
fn record(event: Event) {
    memory().this_cpu().tracer().record(event);
}

/// Writes this module's part of the report: nothing, or all latencies measured and a comma.
pub fn report(out: &mut Port) {
    let Some(memory) = try_memory() else {
        return;
    };
    if memory.cpus().iter().all(|cpu| !cpu.tracer().is_on()) {
        return;
    }
    let _ = write!(out, "\"latencies\":[");
    let mut separator = "";
    for (number, measure) in Measure::all().enumerate() {
        let mut sum = Latency::default();
        for cpu in memory.cpus() {
            cpu.tracer().latencies().add_to(measure, &mut sum);
        }
        if sum.count() == 0 {
            continue;
        }
        let _ = write!(
            out,
            "{separator}{{\"measure\":{number},\"max\":{},\"total\":{},\"buckets\":[",
            sum.max, sum.total
        );
        separator = ",";
        let mut comma = "";
        for (bucket, count) in sum.buckets() {
            let _ = write!(out, "{comma}[{bucket},{count}]");
            comma = ",";
        }
        let _ = write!(out, "]}}");
    }
    let _ = write!(out, "],");
}
