//! Writes events from the rings to a file: assigns each to a thread, filters, and counts lost ones.
//!
//! A CPU's events arrive in order, and a switch says which thread the events after it belong to. A switch may be
//! among lost events, so the thread is unknown from there to the next switch.

use std::io::Write;

use anyhow::Result;
use faultless_trace::{Event, Kind, Mask, Switch};

use super::filter::Filter;
use super::perfetto::Writer;
use super::seen::Seen;
use crate::counters::Counters;
use crate::machine::watch::Sink;

/// Which events are written.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Their kinds.
    pub kinds: Vec<Kind>,
    /// The condition that they have to meet.
    pub filter: Option<Filter>,
}

impl Wanted {
    /// What a machine has to record for it. Switches always: they identify the threads.
    pub fn mask(&self) -> Mask {
        let mask = Mask::LATENCIES.with(Kind::Switch);
        self.kinds.iter().fold(mask, |mask, &kind| mask.with(kind))
    }

    fn has(&self, seen: &Seen) -> bool {
        self.kinds.contains(&seen.event.kind)
            && self.filter.as_ref().is_none_or(|filter| filter.holds(seen))
    }
}

/// Writes the wanted events to a file.
pub struct Recorder<W: Write> {
    wanted: Wanted,
    writer: Writer<W>,
    cpus: Vec<Cpu>,
    written: u64,
    lost: u64,
}

/// What runs on a CPU.
#[derive(Clone, Copy, Default)]
struct Cpu {
    thread: Option<Switch>,
    since: u64,
    last: u64,
}

/// What was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Events in the file.
    pub written: u64,
    /// Events that were lost.
    pub lost: u64,
}

impl<W: Write> Recorder<W> {
    /// Nothing recorded yet.
    pub fn new(wanted: Wanted, writer: Writer<W>) -> Self {
        Recorder {
            wanted,
            writer,
            cpus: Vec::new(),
            written: 0,
            lost: 0,
        }
    }

    fn cpu(&mut self, number: u32) -> &mut Cpu {
        let number = number as usize;
        if self.cpus.len() <= number {
            self.cpus.resize(number + 1, Cpu::default());
        }
        &mut self.cpus[number]
    }

    /// Ends the runs of all threads, and the file. `counters`: the machine's counters, if known.
    pub fn finish(mut self, counters: Option<&Counters>) -> Result<Recorded> {
        for number in 0..self.cpus.len() as u32 {
            let cpu = self.cpus[number as usize];
            self.ran(number, cpu, cpu.last)?;
        }
        let recorded = Recorded {
            written: self.written,
            lost: self.lost,
        };
        self.writer.finish(recorded, counters)?;
        Ok(recorded)
    }

    /// Writes that a thread ran until `until`, if that is wanted.
    fn ran(&mut self, number: u32, cpu: Cpu, until: u64) -> Result<()> {
        let Some(thread) = cpu.thread.filter(|thread| thread.thread != 0) else {
            return Ok(());
        };
        let seen = Seen {
            event: Event::switch(cpu.since, thread),
            cpu: number,
            thread: Some(thread),
        };
        if self.wanted.has(&seen) {
            self.writer.run(&seen, until)?;
            self.written += 1;
        }
        Ok(())
    }
}

impl<W: Write + Send> Sink for Recorder<W> {
    fn event(&mut self, number: u32, event: Event) -> Result<()> {
        let cpu = self.cpu(number);
        let before = *cpu;
        cpu.last = event.start.saturating_add(event.duration());
        if event.kind == Kind::Switch {
            cpu.thread = Some(event.to_thread());
            cpu.since = event.start;
            return self.ran(number, before, event.start);
        }
        let seen = Seen {
            event,
            cpu: number,
            thread: before.thread.filter(|thread| thread.thread != 0),
        };
        if self.wanted.has(&seen) {
            self.writer.event(&seen)?;
            self.written += 1;
        }
        Ok(())
    }

    fn lost(&mut self, number: u32, count: u64) {
        self.lost += count;
        // A switch may be lost: when this thread stopped is unknown.
        self.cpu(number).thread = None;
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Filter, Kind, Recorder, Sink as _, Switch, Wanted, Writer};
    use serde_json::Value;

    fn thread(number: u32) -> Switch {
        let mut thread = Switch::idle();
        (thread.process, thread.thread) = (100, number);
        thread.name[..2].copy_from_slice(b"it");
        thread
    }

    /// The file, and its events without the names of tracks.
    fn record(
        wanted: Wanted,
        feed: impl FnOnce(&mut Recorder<&mut Vec<u8>>),
    ) -> (Value, Vec<Value>) {
        let mut bytes = Vec::new();
        let writer = Writer::new(&mut bytes, &serde_json::json!({})).unwrap();
        let mut recorder = Recorder::new(wanted, writer);
        feed(&mut recorder);
        recorder.finish(None).unwrap();
        let file: Value = serde_json::from_slice(&bytes).unwrap();
        let events = file["traceEvents"].as_array().unwrap().iter();
        let events = events.filter(|event| event["ph"] != "M").cloned().collect();
        (file, events)
    }

    fn all() -> Wanted {
        Wanted {
            kinds: Kind::ALL.to_vec(),
            filter: None,
        }
    }

    fn munmap(start: u64) -> Event {
        Event::slice(Kind::Munmap, start, start + 10, 0x1000, 4096)
    }

    #[test]
    fn events_belong_to_the_thread_that_was_switched_to() {
        let (file, events) = record(all(), |recorder| {
            recorder.event(0, munmap(0)).unwrap();
            recorder.event(0, Event::switch(20, thread(105))).unwrap();
            recorder.event(1, Event::switch(25, thread(106))).unwrap();
            recorder.event(0, munmap(30)).unwrap();
            recorder
                .event(0, Event::switch(50, Switch::idle()))
                .unwrap();
            recorder.event(0, munmap(60)).unwrap();
        });
        let tracks: Vec<_> = events
            .iter()
            .map(|event| {
                (
                    event["cat"].as_str().unwrap(),
                    event["tid"].as_u64().unwrap(),
                )
            })
            .collect();
        // Without a thread, on the CPU's own track.
        let expected = [
            ("mm:munmap", 1),
            ("mm:munmap", 105),
            ("sched:switch", 1),
            ("mm:munmap", 1),
            ("sched:switch", 2),
        ];
        assert_eq!(tracks, expected);
        assert_eq!(events[2]["dur"], 0.03);
        assert_eq!(file["faultless"]["events"], 5);
        assert_eq!(file["faultless"]["lost"], 0);
    }

    #[test]
    fn after_a_loss_the_thread_is_not_known() {
        let (file, events) = record(all(), |recorder| {
            recorder.event(0, Event::switch(0, thread(105))).unwrap();
            recorder.lost(0, 9);
            recorder.event(0, munmap(10)).unwrap();
            recorder.event(0, Event::switch(30, thread(106))).unwrap();
            recorder.event(0, munmap(40)).unwrap();
        });
        let tracks: Vec<_> = events
            .iter()
            .map(|event| event["tid"].as_u64().unwrap())
            .collect();
        assert_eq!(tracks, [1, 106, 1]);
        assert_eq!(file["faultless"]["lost"], 9);
    }

    #[test]
    fn only_what_is_wanted_is_written() {
        let wanted = Wanted {
            kinds: vec![Kind::Munmap],
            filter: Some(Filter::parse("tid == 105").unwrap()),
        };
        assert!(wanted.mask().has(Kind::Switch) && !wanted.mask().has(Kind::Mmap));
        let (_, events) = record(wanted, |recorder| {
            recorder.event(0, munmap(0)).unwrap();
            recorder.event(0, Event::switch(20, thread(105))).unwrap();
            recorder.event(0, munmap(30)).unwrap();
            recorder
                .event(0, Event::instant(Kind::SpfVmaAccess, 50, 0, 0))
                .unwrap();
        });
        assert_eq!(events.len(), 1);
        assert_eq!(events[0]["tid"], 105);
    }
}
