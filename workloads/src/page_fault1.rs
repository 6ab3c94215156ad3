//! page_fault1: first touches of anonymous memory per second. The twin of
//! `workloads/c/page_fault1.c`, in the manner of will-it-scale.
//!
//! Every thread maps a private anonymous region, writes to each of its pages once, unmaps it, and
//! starts again. With `-1` all threads fault in one mapping, each in its own part of it, and
//! free the pages with `MADV_DONTNEED`.
//!
//! The figure is the last line: pages touched per second by all threads together.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use faultless_mm::{PROT_READ, PROT_WRITE, advice, flags};

use crate::command_line::{Item, Syntax};
use crate::system::{Barrier, MAX_THREADS, PAGE, Stop, Thread};

struct Options {
    tasks: u64,
    samples: u64,
    /// The size of each thread's region, or of its part of the one mapping.
    bytes: u64,
    one_mapping: bool,
}

/// One thread's state, in cache lines that no other thread writes. The main thread reads `touched`
/// once a second.
#[derive(Default)]
#[repr(align(128))]
struct Worker {
    touched: AtomicU64,
}

struct Shared {
    options: Options,
    workers: Vec<Worker>,
    /// With `-1`: the start of the one mapping.
    mapping: u64,
    stop: AtomicBool,
    start: Barrier,
}

const SYNTAX: Syntax = Syntax {
    letters: "s:t:b:1N",
    words: &["help"],
    usage,
};

fn usage(name: &str) -> String {
    format!(
        "Usage: {name} [options]\n\n\
         \t-s iterations\tNumber of seconds to measure, after one to warm up (5)\n\
         \t-t tasks\tNumber of threads to run (1)\n\
         \t-b bytes\tSize of each thread's region; K, M, G allowed (128M)\n\
         \t-1\t\tAll threads in one mapping, each in its own part of it\n\
         \t-N\t\tNo huge pages for this process, where the system has them\n\
         \t--help\t\tPrint this\n\
         Example: {name} -t 4 -s 10 -b 16M -1\n"
    )
}

fn read_options(thread: &Thread<'_>, arguments: &[String]) -> Result<Options, Stop> {
    let mut options = Options {
        tasks: 1,
        samples: 5,
        bytes: 128 << 20,
        one_mapping: false,
    };
    let mut items = SYNTAX.read(arguments);
    for item in items.by_ref() {
        let number = |value, suffix, high| SYNTAX.number(thread, value, suffix, (1, high));
        match item.map_err(|why| SYNTAX.refuse(thread, why))? {
            Item::Letter('s', n) => options.samples = number(('s', n), false, i32::MAX as u64)?,
            Item::Letter('t', n) => options.tasks = number(('t', n), false, MAX_THREADS)?,
            Item::Letter('b', n) => options.bytes = number(('b', n), true, 1 << 46)?,
            Item::Letter('1', _) => options.one_mapping = true,
            // No effect: there are no huge pages.
            Item::Letter(..) => {}
            Item::Word(_) => return Err(SYNTAX.help(thread)),
        }
    }
    SYNTAX.no_operands(thread, &items.operands())?;
    options.bytes = options.bytes.next_multiple_of(PAGE);
    Ok(options)
}

/// Runs the program.
pub fn main(thread: &Thread<'_>, arguments: &[String]) -> Result<i32, Stop> {
    let options = read_options(thread, arguments)?;
    let (tasks, bytes) = (options.tasks, options.bytes);
    let shared = &Shared {
        workers: (0..tasks).map(|_| Worker::default()).collect(),
        mapping: if options.one_mapping {
            map(thread, tasks * bytes)?
        } else {
            0
        },
        stop: AtomicBool::new(false),
        start: Barrier::new(tasks as usize + 1),
        options,
    };
    thread.team(|team| {
        for number in 0..tasks as usize {
            team.start(number, move |thread| run(thread, shared, number))
                .map_err(|e| thread.die(format_args!("cannot start thread {number}: {e}")))?;
        }
        measure(thread, shared)
    })?;
    Ok(0)
}

fn measure(thread: &Thread<'_>, shared: &Shared) -> Result<(), Stop> {
    thread.print("testcase:Anonymous memory page fault\nwarmup\n".to_owned());
    let mut previous = vec![0; shared.workers.len()];
    shared.start.wait(thread)?;
    let mut since = Instant::now();
    sample(thread, shared, &mut previous, &mut since)?;
    thread.print("measurement\n".to_owned());
    let mut total = 0;
    for _ in 0..shared.options.samples {
        total += sample(thread, shared, &mut previous, &mut since)?;
    }
    thread.print(format!("average:{}\n", total / shared.options.samples));
    shared.stop.store(true, Ordering::Relaxed);
    Ok(())
}

/// Prints what each thread touched since the last sample, and returns the sum. A sleep of a
/// second may last longer, so the counts are scaled to one second.
fn sample(
    thread: &Thread<'_>,
    shared: &Shared,
    previous: &mut [u64],
    since: &mut Instant,
) -> Result<u64, Stop> {
    thread.sleep(Duration::from_secs(1))?;
    let now = Instant::now();
    let seconds = now.duration_since(*since).as_secs_f64();
    *since = now;
    let (mut min, mut max, mut total) = (u64::MAX, 0, 0);
    for (worker, previous) in shared.workers.iter().zip(previous) {
        let touched = worker.touched.load(Ordering::Relaxed);
        let rate = ((touched - *previous) as f64 / seconds) as u64;
        *previous = touched;
        min = min.min(rate);
        max = max.max(rate);
        total += rate;
    }
    thread.print(format!("min:{min} max:{max} total:{total}\n"));
    Ok(total)
}

fn map(thread: &Thread<'_>, size: u64) -> Result<u64, Stop> {
    let anonymous = flags::PRIVATE | flags::ANONYMOUS;
    let result = thread.call(|space| space.mmap(0, size, PROT_READ | PROT_WRITE, anonymous))?;
    result.map_err(|e| thread.die(format_args!("cannot map {size} bytes: {e}")))
}

fn run(thread: &Thread<'_>, shared: &Shared, number: usize) -> Result<(), Stop> {
    let (bytes, one_mapping) = (shared.options.bytes, shared.options.one_mapping);
    shared.start.wait(thread)?;
    while !shared.stop.load(Ordering::Relaxed) {
        if one_mapping {
            let part = shared.mapping + number as u64 * bytes;
            touch_pages(thread, shared, number, part)?;
            let result = thread.call(|space| space.madvise(part, bytes, advice::DONTNEED))?;
            thread.or_die("madvise", result)?;
        } else {
            let region = map(thread, bytes)?;
            touch_pages(thread, shared, number, region)?;
            let result = thread.call(|space| space.munmap(region, bytes))?;
            thread.or_die("munmap", result)?;
        }
    }
    Ok(())
}

/// Writes to each page of the region until `stop` is set. Only the owner writes its counter, so a
/// load and a store suffice.
fn touch_pages(
    thread: &Thread<'_>,
    shared: &Shared,
    number: usize,
    region: u64,
) -> Result<(), Stop> {
    let counter = &shared.workers[number].touched;
    let mut touched = counter.load(Ordering::Relaxed);
    for i in (0..shared.options.bytes).step_by(PAGE as usize) {
        if shared.stop.load(Ordering::Relaxed) {
            break;
        }
        thread.store_u8(region + i, 1)?;
        touched += 1;
        counter.store(touched, Ordering::Relaxed);
    }
    Ok(())
}
