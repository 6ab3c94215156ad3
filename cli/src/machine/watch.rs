//! Observes a machine while it runs: what it records, and which sink gets the events.
//!
//! A machine records into rings, one for each CPU ([`faultless_trace::Ring`]). While it runs, the rings are
//! drained, often enough that none fills up, and the events are passed to a [`Sink`].

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use faultless_trace::{Event, Mask};

/// How often rings are drained; a ring of 2 MiB holds 65,000 events.
const PERIOD: Duration = Duration::from_millis(3);

/// Receives events; those of one CPU arrive in the order in which they ended.
pub trait Sink: Send {
    /// Receives an event of a CPU.
    ///
    /// # Errors
    /// When it cannot be kept; no more events arrive then.
    fn event(&mut self, cpu: u32, event: Event) -> Result<()>;

    /// Reports that the `count` events of a CPU after the last received one came too fast and are lost.
    fn lost(&mut self, cpu: u32, count: u64);
}

/// What a run is to record.
pub struct Watch<'a> {
    /// Events and latencies.
    pub record: Mask,
    /// Where the events go.
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

/// The rings of a machine, as this command reads them.
pub trait Rings: Send {
    /// The number of CPUs that are known to have a ring.
    fn cpus(&self) -> u32;

    /// Passes a CPU's events from number `from` on to `each`, with their numbers; events left out are lost.
    /// Returns the number to continue from.
    fn collect(&mut self, cpu: u32, from: u64, each: &mut dyn FnMut(u64, Event)) -> Result<u64>;
}

/// Limit of drained events that the sink has not received yet: about 400 MiB.
const WAITING: usize = 8 << 20;

/// Events of one CPU, with their numbers, and the number to continue from.
struct Batch {
    cpu: u32,
    events: Vec<(u64, Event)>,
    end: u64,
}

/// Runs `work`, and passes the events recorded meanwhile to `sink`, if there is one.
///
/// One thread drains the rings, which must not take long. Another thread passes the events to the sink, and
/// may fall behind.
pub fn collect_during<R>(
    sink: Option<&mut dyn Sink>,
    rings: impl Rings,
    work: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let Some(sink) = sink else {
        return work();
    };
    let over = AtomicBool::new(false);
    let waiting = AtomicUsize::new(0);
    let (batches, received) = mpsc::channel();
    thread::scope(|scope| {
        let emptier = scope.spawn(|| empty(rings, batches, &waiting, &over));
        let giver = scope.spawn(|| give(sink, received, &waiting));
        let result = work();
        // Relaxed: the rings themselves publish what they hold.
        over.store(true, Ordering::Relaxed);
        let died = |_| anyhow!("a thread that collects events failed");
        let emptied = emptier.join().map_err(died)?;
        let given = giver.join().map_err(died)?;
        let result = result?;
        given.and(emptied)?;
        Ok(result)
    })
}

/// Drains the rings until `over` is set and they are empty.
fn empty(
    mut rings: impl Rings,
    batches: Sender<Batch>,
    waiting: &AtomicUsize,
    over: &AtomicBool,
) -> Result<()> {
    let mut next: Vec<u64> = Vec::new();
    loop {
        let last = over.load(Ordering::Relaxed);
        next.resize(rings.cpus() as usize, 0);
        for (cpu, next) in (0..).zip(&mut next) {
            if waiting.load(Ordering::Relaxed) > WAITING && !last {
                // The oldest events are lost, and counted, if the sink does not catch up.
                break;
            }
            let mut events = Vec::new();
            let mut keep = |number, event| events.push((number, event));
            let end = rings.collect(cpu, *next, &mut keep)?;
            if end == *next {
                continue;
            }
            *next = end;
            waiting.fetch_add(events.len(), Ordering::Relaxed);
            if batches.send(Batch { cpu, events, end }).is_err() {
                // The sink has failed, and reports why.
                return Ok(());
            }
        }
        if last {
            return Ok(());
        }
        thread::sleep(PERIOD);
    }
}

/// Passes batches to the sink, and reports the events that are missing between them.
fn give(sink: &mut dyn Sink, batches: Receiver<Batch>, waiting: &AtomicUsize) -> Result<()> {
    let mut next: Vec<u64> = Vec::new();
    for Batch { cpu, events, end } in batches {
        if next.len() <= cpu as usize {
            next.resize(cpu as usize + 1, 0);
        }
        let next = &mut next[cpu as usize];
        waiting.fetch_sub(events.len(), Ordering::Relaxed);
        for (number, event) in events {
            if number > *next {
                sink.lost(cpu, number - *next);
            }
            sink.event(cpu, event)?;
            *next = number + 1;
        }
        if end > *next {
            sink.lost(cpu, end - *next);
            *next = end;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::{Event, Result, Rings, Sink, collect_during};
    use anyhow::bail;
    use faultless_trace::Kind;

    fn event(number: u64) -> Event {
        Event::instant(Kind::Mmap, number, 0, 0)
    }

    /// Of 10 events of each CPU, 3, 4 and 7 can be read.
    struct Three;

    impl Rings for Three {
        fn cpus(&self) -> u32 {
            2
        }

        fn collect(&mut self, _: u32, from: u64, each: &mut dyn FnMut(u64, Event)) -> Result<u64> {
            for number in [3, 4, 7].into_iter().filter(|&number| number >= from) {
                each(number, event(number));
            }
            Ok(10)
        }
    }

    #[derive(Default)]
    struct Noted(Mutex<Vec<(u32, Option<u64>, u64)>>, bool);

    impl Sink for Noted {
        fn event(&mut self, cpu: u32, event: Event) -> Result<()> {
            if self.1 {
                bail!("full");
            }
            self.0.lock().unwrap().push((cpu, Some(event.start), 0));
            Ok(())
        }

        fn lost(&mut self, cpu: u32, count: u64) {
            self.0.lock().unwrap().push((cpu, None, count));
        }
    }

    #[test]
    fn the_sink_gets_events_and_losses_in_order() {
        let mut sink = Noted::default();
        let result = collect_during(Some(&mut sink), Three, || Ok(7));
        assert_eq!(result.unwrap(), 7);
        let seen = sink.0.into_inner().unwrap();
        for cpu in 0..2 {
            let of_cpu = seen.iter().filter(|(of, ..)| *of == cpu);
            let of_cpu: Vec<_> = of_cpu.map(|&(_, start, lost)| (start, lost)).collect();
            let (some, lost) = (|n| (Some(n), 0), |n| (None, n));
            assert_eq!(
                of_cpu,
                [lost(3), some(3), some(4), lost(2), some(7), lost(2)]
            );
        }
    }

    #[test]
    fn a_sink_that_fails_is_reported_once_the_work_is_done() {
        let mut sink = Noted(Mutex::default(), true);
        let error = collect_during(Some(&mut sink), Three, || Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "full");
        let error = collect_during(None, Three, || -> Result<()> { bail!("work") });
        assert_eq!(error.unwrap_err().to_string(), "work");
    }
}
