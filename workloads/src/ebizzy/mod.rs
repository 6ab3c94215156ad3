//! ebizzy: threads that copy a chunk of memory, look a record up in the copy, and free the copy
//! again, as a search application does for each request. The twin of `workloads/c/ebizzy.c`.
//!
//! The figure is records/s; a record is one allocate-copy-search-free cycle.
//!
//! As in ebizzy 0.3 the random generator always yields 0, unless `--true-random` is given.
//! One record of the published `-mTRp` maps one page, touches it, and unmaps it.

mod data;
mod memory;
mod options;
mod record;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::system::{Barrier, Stop, Thread, Times};
use memory::Memory;
use options::Options;

/// The size of a record in bytes.
const RECORD: u64 = 8;

/// The state that all threads share.
struct Shared {
    options: Options,
    memory: Memory,
    /// The address of the table of the chunks' addresses.
    chunks: u64,
    stop: AtomicBool,
    /// Passed once when every thread is ready, and once more to start them all: the clock is read
    /// in between.
    start: Barrier,
    records: AtomicU64,
}

/// One thread's state.
struct Worker {
    number: usize,
    random_state: u64,
    /// With `-M`: the address of this thread's copies.
    slot: u64,
}

/// Runs the program.
pub fn main(thread: &Thread<'_>, arguments: &[String]) -> Result<i32, Stop> {
    let options = options::read(thread, arguments)?;
    if options.verbose > 0 {
        thread.print(options.to_string());
    }
    let memory = Memory::new(&options);
    let chunks = data::make_chunks(thread, &options, &memory)?;
    data::fill_chunks(thread, &options, chunks)?;
    let shared = Shared {
        start: Barrier::new(options.threads as usize + 1),
        options,
        memory,
        chunks,
        stop: AtomicBool::new(false),
        records: AtomicU64::new(0),
    };
    measure(thread, &shared)?;
    Ok(0)
}

fn measure(thread: &Thread<'_>, shared: &Shared) -> Result<(), Stop> {
    let options = &shared.options;
    let workers = prepare(thread, shared)?;
    let (real, before, after) = thread.team(|team| {
        for worker in workers {
            let number = worker.number;
            let run = move |thread: &Thread<'_>| run(thread, shared, worker);
            team.start(number, run)
                .map_err(|e| thread.die(format_args!("cannot start thread {number}: {e}")))?;
        }
        shared.start.wait(thread)?;
        let (before, start) = (Times::now(), Instant::now());
        shared.start.wait(thread)?;
        thread.sleep(Duration::from_secs(options.seconds))?;
        // Relaxed: the flag orders nothing else.
        shared.stop.store(true, Ordering::Relaxed);
        Ok((start.elapsed().as_secs_f64(), before, Times::now()))
    })?;
    if options.verbose > 0 {
        thread.print("Threads finished\n".to_owned());
    }
    let records = shared.records.load(Ordering::Relaxed) as f64;
    thread.print(format!(
        "{} records/s\nreal {real:5.2} s\nuser {:5.2} s\nsys  {:5.2} s\n",
        (records / real) as u64,
        after.user - before.user,
        after.system - before.system,
    ));
    Ok(())
}

fn prepare(thread: &Thread<'_>, shared: &Shared) -> Result<Vec<Worker>, Stop> {
    let options = &shared.options;
    if options.verbose > 0 {
        thread.print("Threads starting\n".to_owned());
    }
    let worker = |number: u64| {
        let slot = if options.never_mmap {
            shared
                .memory
                .allocate(thread, options, options.chunk_size)?
        } else {
            0
        };
        Ok(Worker {
            number: number as usize,
            random_state: 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number + 1),
            slot,
        })
    };
    (0..options.threads).map(worker).collect()
}

fn run(thread: &Thread<'_>, shared: &Shared, mut worker: Worker) -> Result<(), Stop> {
    let verbose = shared.options.verbose > 1;
    let number = worker.number;
    if verbose {
        thread.print(format!("[{number}] Thread started\n"));
    }
    shared.start.wait(thread)?;
    shared.start.wait(thread)?;
    let mut records = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        record::one(thread, shared, &mut worker)?;
        records += 1;
    }
    shared.records.fetch_add(records, Ordering::Relaxed);
    if verbose {
        thread.print(format!(
            "[{number}] Thread finished, processed {records} records\n"
        ));
    }
    Ok(())
}
