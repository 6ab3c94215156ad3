//! first_write: no first write to a page is ever lost. The twin of `workloads/c/first_write.c`.
//!
//! Every thread writes a word of its own in the same fresh page, all at the same time, page after
//! page. In the end every word must be present, and every unwritten word must be zero. Pages
//! have kinds in turn (`page::Kind`). With `-d`, further threads keep changing the protection of one
//! page in the middle of the mapping.

mod disturb;
mod gate;
mod options;
mod page;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use faultless_mm::{PROT_READ, PROT_WRITE, flags};

use crate::system::{PAGE, Stop, Team, Thread};
use disturb::Disturbance;
use gate::Gate;
use options::Options;
use page::{KINDS, Tally};

/// The state that all threads share.
struct Shared {
    options: Options,
    gate: Gate,
    /// One page more than a round has: the disturbed one, in the middle. Written by
    /// thread 0 between two passages of the gate.
    region: AtomicU64,
    round: AtomicU64,
    disturbance: Disturbance,
    stop: AtomicBool,
    tally: Mutex<Tally>,
}

impl Shared {
    /// The number of the page in the middle.
    fn disturbed(&self) -> u64 {
        self.options.pages / 2
    }

    fn region_size(&self) -> u64 {
        (self.options.pages + 1) * PAGE
    }
}

/// Runs the program.
pub fn main(thread: &Thread<'_>, arguments: &[String]) -> Result<i32, Stop> {
    let options = options::read(thread, arguments)?;
    let shared = &Shared {
        gate: Gate::new(options.threads as usize),
        region: AtomicU64::new(0),
        round: AtomicU64::new(0),
        disturbance: Disturbance::new(options.disturbers as usize),
        stop: AtomicBool::new(false),
        tally: Mutex::new(Tally::default()),
        options,
    };
    let threads = shared.options.threads as usize;
    thread.team(|disturbers| {
        for i in 0..shared.options.disturbers as usize {
            start(thread, disturbers, threads + i, |thread| {
                disturb::run(thread, shared)
            })?;
        }
        thread.team(|writers| {
            for i in 0..threads {
                start(thread, writers, i, move |thread| {
                    run(thread, shared, i as u64)
                })?;
            }
            Ok(())
        })?;
        shared.stop.store(true, Ordering::SeqCst);
        Ok(())
    })?;
    Ok(report(thread, shared))
}

fn start<'scope>(
    thread: &Thread<'_>,
    team: &Team<'scope, '_>,
    number: usize,
    body: impl FnOnce(&Thread<'_>) -> Result<(), Stop> + Send + 'scope,
) -> Result<(), Stop> {
    let died = |e| thread.die(format_args!("cannot start thread {number}: {e}"));
    team.start(number, body).map_err(died)
}

fn run(thread: &Thread<'_>, shared: &Shared, own: u64) -> Result<(), Stop> {
    for round in 0..shared.options.rounds {
        if own == 0 {
            begin_round(thread, shared, round)?;
        }
        shared.gate.pass(thread)?;
        for number in 0..shared.options.pages {
            page::race(thread, shared, number, own)?;
        }
        shared.gate.pass(thread)?;
        if own == 0 {
            end_round(thread, shared)?;
        }
    }
    Ok(())
}

fn begin_round(thread: &Thread<'_>, shared: &Shared, round: u64) -> Result<(), Stop> {
    shared.round.store(round, Ordering::Relaxed);
    let size = shared.region_size();
    let old = shared.region.load(Ordering::Relaxed);
    if old != 0 {
        let result = thread.call(|space| space.munmap(old, size))?;
        thread.or_die("munmap", result)?;
    }
    let anonymous = flags::PRIVATE | flags::ANONYMOUS;
    let result = thread.call(|space| space.mmap(0, size, PROT_READ | PROT_WRITE, anonymous))?;
    let region = result.map_err(|e| thread.die(format_args!("cannot map {size} bytes: {e}")))?;
    shared.region.store(region, Ordering::Relaxed);
    shared.disturbance.begin();
    Ok(())
}

fn end_round(thread: &Thread<'_>, shared: &Shared) -> Result<(), Stop> {
    shared.disturbance.end(thread)?;
    let mut tally = Tally::default();
    for number in 0..shared.options.pages {
        page::check(thread, shared, number, &mut tally)?;
    }
    shared
        .tally
        .lock()
        .unwrap_or_else(|e| e.into_inner())
        .add(&tally);
    Ok(())
}

/// Prints the counts, and returns the exit status.
fn report(thread: &Thread<'_>, shared: &Shared) -> i32 {
    let tally = shared.tally.lock().unwrap_or_else(|e| e.into_inner());
    let print = |name: &str, [written, lost, stale]: [u64; 3]| {
        thread.print(format!(
            "{name:<12} {written} first writes, {lost} lost, {stale} words not zero\n"
        ));
    };
    for (kind, counts) in KINDS.iter().zip(&tally.0) {
        print(kind.name(), *counts);
    }
    let total = tally.total();
    print("total", total);
    // More faults than pages show that threads met in a page.
    let (faults, options) = (thread.process().faults(), &shared.options);
    let pages = options.rounds * options.pages;
    thread.print(format!("{:<12} {faults} for {pages} pages\n", "faults"));
    i32::from(total[1] != 0 || total[2] != 0)
}
