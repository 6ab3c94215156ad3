//! Looking inside a machine while it runs: what it is to record, and who gets the events.
//!
//! A machine records into rings, one for each CPU ([`faultless_trace::Ring`]). While it runs, a
//! thread of this command takes out what is new, often enough that a ring does not run full, and
//! gives it to a [`Sink`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use faultless_trace::{Event, Mask};

/// How often rings are looked at: a ring of 2 MiB takes 65,000 events.
const PERIOD: Duration = Duration::from_millis(3);

/// Takes events as they come: those of one CPU in the order in which they ended.
pub trait Sink: Send {
    /// An event of a CPU.
    ///
    /// # Errors
    /// When it cannot be kept; no more events come then.
    fn event(&mut self, cpu: u32, event: Event) -> Result<()>;

    /// So many of its events, behind the last that was given, came too fast and are lost.
    fn lost(&mut self, cpu: u32, count: u64);
}

/// What a run is to record.
pub struct Watch<'a> {
    /// Events and latencies.
    pub record: Mask,
    /// Who gets the events.
    pub sink: Option<&'a mut dyn Sink>,
}

impl Watch<'_> {
    /// A run that records nothing.
    pub fn nothing() -> Self {
        Watch {
            record: Mask::NONE,
            sink: None,
        }
    }

    /// A run that measures how long things take.
    pub fn latencies() -> Self {
        Watch {
            record: Mask::LATENCIES,
            sink: None,
        }
    }
}

/// The rings of a machine, as they can be read from here.
pub trait Rings: Send {
    /// CPUs with a ring, as far as is known now.
    fn cpus(&self) -> u32;

    /// Gives a CPU's events from number `from` on to `each`, with their numbers; those left out are
    /// lost. The number to go on from.
    fn collect(&mut self, cpu: u32, from: u64, each: &mut dyn FnMut(u64, Event)) -> Result<u64>;
}

/// Runs `work`, and gives what is recorded meanwhile to `sink`, if there is one.
pub fn collect_during<R>(
    sink: Option<&mut dyn Sink>,
    rings: impl Rings,
    work: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let Some(sink) = sink else {
        return work();
    };
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let collector = scope.spawn(|| collect(sink, rings, &over));
        let result = work();
        // Relaxed: the rings themselves say what they hold.
        over.store(true, Ordering::Relaxed);
        let collected = collector
            .join()
            .map_err(|_| anyhow!("the thread that collects events failed"))?;
        let result = result?;
        collected.context("events are missing from here on")?;
        Ok(result)
    })
}

fn collect(sink: &mut dyn Sink, mut rings: impl Rings, over: &AtomicBool) -> Result<()> {
    let mut next: Vec<u64> = Vec::new();
    loop {
        let last = over.load(Ordering::Relaxed);
        next.resize(rings.cpus() as usize, 0);
        for (cpu, next) in (0..).zip(&mut next) {
            let mut kept = Ok(());
            let end = rings.collect(cpu, *next, &mut |number, event| {
                if kept.is_ok() {
                    if number > *next {
                        sink.lost(cpu, number - *next);
                    }
                    kept = sink.event(cpu, event);
                    *next = number + 1;
                }
            })?;
            kept?;
            if end > *next {
                sink.lost(cpu, end - *next);
                *next = end;
            }
        }
        if last {
            return Ok(());
        }
        thread::sleep(PERIOD);
    }
}
