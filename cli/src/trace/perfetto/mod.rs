//! Writes the file, in Chrome's JSON trace format, which Perfetto opens.
//!
//! One event a line. A thread is a track of its process. CPUs are the tracks of a process of their own: they show
//! the threads that run, the shootdowns that the CPU answers, and events without a thread. An arrow leads from the
//! sender of a shootdown to the CPU that answers it.
//!
//! ```text
//! {"displayTimeUnit":"ns","otherData":{…},"traceEvents":[
//! {"ph":"X",…},
//! …
//! {"ph":"M",…}],
//! "faultless":{"events":5,"lost":0,"counters":{…}}}
//! ```

mod arrows;
mod tracks;

use std::fmt::Write as _;
use std::io::{BufWriter, Write};

use anyhow::{Context as _, Result};
use faultless_trace::{Event, Kind, Switch};
use serde_json::{Value as Json, json};

use super::recorder::Recorded;
use super::seen::{Field, Seen, Value};
use crate::counters::Counters;
use arrows::{Arrows, End};
use tracks::{Track, Tracks, of_cpu, shown_name};

/// How the first line of every file begins.
pub const BEGINNING: &str =
    "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"generator\":\"faultless\"";

/// Writes a file.
pub struct Writer<W: Write> {
    out: BufWriter<W>,
    line: String,
    is_first: bool,
    tracks: Tracks,
    arrows: Arrows,
}

impl<W: Write> Writer<W> {
    /// Begins a file. `about` is an object that describes the run.
    pub fn new(out: W, about: &Json) -> Result<Self> {
        let mut writer = Writer {
            out: BufWriter::with_capacity(1 << 20, out),
            line: String::new(),
            is_first: true,
            tracks: Tracks::default(),
            arrows: Arrows::default(),
        };
        let about = about.to_string();
        let about = about
            .strip_prefix('{')
            .and_then(|about| about.strip_suffix('}'));
        let about = about.unwrap_or_default();
        let comma = if about.is_empty() { "" } else { "," };
        write!(writer.out, "{BEGINNING}{comma}{about}}},\"traceEvents\":[").context(CANNOT)?;
        Ok(writer)
    }

    /// Writes an event on the track of its thread or CPU.
    pub fn event(&mut self, seen: &Seen) -> Result<()> {
        let event = &seen.event;
        let of_cpu = event.kind == Kind::ShootdownReceived;
        let track = match seen.thread {
            Some(thread) if !of_cpu => self.track_of(&thread)?,
            _ => self.track_of_cpu(seen.cpu)?,
        };
        self.begin(event, &title(event), track);
        if is_instant(event.kind) {
            self.line.push_str(",\"ph\":\"i\",\"s\":\"t\"");
        } else {
            let _ = write!(
                self.line,
                ",\"ph\":\"X\",\"dur\":{}",
                micros(event.duration())
            );
        }
        let _ = write!(self.line, ",\"args\":{{\"cpu\":{}", seen.cpu);
        for &field in Field::of(event.kind) {
            let name = field.name();
            let _ = match seen.value(field) {
                Some(Value::Number(number)) if is_address(field) => {
                    write!(self.line, ",\"{name}\":\"{number:#x}\"")
                }
                Some(Value::Number(number)) => write!(self.line, ",\"{name}\":{number}"),
                Some(Value::Text(text)) => write!(self.line, ",\"{name}\":\"{text}\""),
                None => Ok(()),
            };
        }
        self.line.push_str("}}");
        self.put()?;
        let here = End {
            from: event.start,
            until: event.start.saturating_add(event.duration()),
            track,
        };
        for (from, to) in self.arrows.end(event, seen.cpu, here) {
            self.put_arrow(from, to)?;
        }
        Ok(())
    }

    /// Writes that a thread ran from the event's time until `until`.
    pub fn run(&mut self, seen: &Seen, until: u64) -> Result<()> {
        let thread = seen.event.to_thread();
        let track = self.track_of_cpu(seen.cpu)?;
        self.begin(&seen.event, &shown_name(&thread, thread.thread), track);
        let _ = write!(
            self.line,
            ",\"ph\":\"X\",\"dur\":{},\"args\":{{\"cpu\":{},\"pid\":{},\"tid\":{}}}}}",
            micros(until.saturating_sub(seen.event.start)),
            seen.cpu,
            thread.process,
            thread.thread
        );
        self.put()
    }

    /// Ends the file.
    pub fn finish(mut self, recorded: Recorded, counters: Option<&Counters>) -> Result<()> {
        let Recorded { written, lost } = recorded;
        let end = json!({ "events": written, "lost": lost, "counters": counters });
        write!(self.out, "],\n\"faultless\":{end}}}\n").context(CANNOT)?;
        self.out.flush().context(CANNOT)
    }

    /// Writes an arrow, which must not end before it begins, and must end inside the answer. If the CPU was
    /// already answering, the answer begins before the shootdown is sent.
    fn put_arrow(&mut self, from: End, to: End) -> Result<()> {
        let arrival = to.from.max(from.from);
        if arrival > to.from && arrival >= to.until {
            return Ok(());
        }
        let number = self.arrows.next_number();
        let ends = [
            ("\"s\"", from.from, from.track),
            ("\"f\",\"bp\":\"e\"", arrival, to.track),
        ];
        for (phase, time, (process, thread)) in ends {
            self.line.clear();
            let _ = write!(
                self.line,
                "{{\"name\":\"shootdown\",\"cat\":\"tlb:shootdown\",\"ph\":{phase},\"id\":{},\
                 \"ts\":{},\"pid\":{process},\"tid\":{thread}}}",
                number,
                micros(time)
            );
            self.put()?;
        }
        Ok(())
    }

    fn track_of(&mut self, thread: &Switch) -> Result<Track> {
        self.name((thread.process, thread.thread), thread.name)
    }

    fn track_of_cpu(&mut self, cpu: u32) -> Result<Track> {
        let (track, name) = of_cpu(cpu);
        self.name(track, name)
    }

    /// Names a track, if its name is new or has changed.
    fn name(&mut self, track: Track, name: [u8; 16]) -> Result<Track> {
        for line in self.tracks.name(track, name) {
            self.line.clear();
            let _ = write!(self.line, "{line}");
            self.put()?;
        }
        Ok(track)
    }

    fn begin(&mut self, event: &Event, title: &str, (pid, tid): Track) {
        self.line.clear();
        let title = Json::from(title);
        let _ = write!(
            self.line,
            "{{\"name\":{title},\"cat\":\"{}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{}",
            event.kind.name(),
            micros(event.start)
        );
    }

    fn put(&mut self) -> Result<()> {
        let separator = if self.is_first { "\n" } else { ",\n" };
        self.is_first = false;
        self.out
            .write_all(separator.as_bytes())
            .and_then(|()| self.out.write_all(self.line.as_bytes()))
            .context(CANNOT)
    }
}

const CANNOT: &str = "cannot write the trace";

/// The title of an event's slice.
fn title(event: &Event) -> String {
    match event.kind {
        Kind::Fault => format!("fault: {}", event.how().name()),
        kind => {
            let name = kind.name();
            name.split_once(':')
                .map_or(name, |(_, name)| name)
                .to_owned()
        }
    }
}

fn is_instant(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::SpfPteLock
            | Kind::SpfVmaChanged
            | Kind::SpfVmaNoanon
            | Kind::SpfVmaNotsup
            | Kind::SpfVmaAccess
            | Kind::SpfPmdChanged
            | Kind::RmwFault
            | Kind::ShootdownSent
            | Kind::FastPageFault
    )
}

/// Whether a field is an address or an entry, written as a hexadecimal string: JSON's numbers cannot hold every address.
fn is_address(field: Field) -> bool {
    matches!(
        field,
        Field::Address | Field::Wanted | Field::OldEntry | Field::NewEntry
    )
}

/// Nanoseconds as the microseconds that the format wants, exactly.
fn micros(nanoseconds: u64) -> String {
    format!("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000)
}

#[cfg(test)]
mod tests {
    use super::{Event, Json, Kind, Recorded, Seen, Switch, Writer, json};
    use faultless_trace::{How, Reason};

    fn file(write: impl FnOnce(&mut Writer<&mut Vec<u8>>)) -> (String, Json) {
        let mut bytes = Vec::new();
        let about = json!({ "program": ["./a \"b\""] });
        let mut writer = Writer::new(&mut bytes, &about).unwrap();
        write(&mut writer);
        let recorded = Recorded {
            written: 7,
            lost: 2,
        };
        writer.finish(recorded, None).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let file = serde_json::from_str(&text).unwrap();
        (text, file)
    }

    fn seen(event: Event, cpu: u32) -> Seen {
        let mut thread = Switch::idle();
        (thread.process, thread.thread) = (100, 101);
        thread.name[..3].copy_from_slice(b"a\"\\");
        Seen {
            event,
            cpu,
            thread: Some(thread),
        }
    }

    #[test]
    fn without_events_it_is_still_a_file() {
        let (text, file) = file(|_| {});
        assert!(text.starts_with(super::BEGINNING));
        assert_eq!(file["traceEvents"], json!([]));
        assert_eq!(file["otherData"]["program"][0], "./a \"b\"");
        assert_eq!(
            file["faultless"],
            json!({"events": 7, "lost": 2, "counters": null})
        );
    }

    #[test]
    fn a_fault_is_a_slice_of_its_thread() {
        let fault = Event::fault(
            1_234_567,
            1_236_568,
            0xffff_ffff_ffff_f000,
            How::Copy,
            true,
            Reason::PteLock,
        );
        let (_, file) = file(|writer| writer.event(&seen(fault, 3)).unwrap());
        let events = file["traceEvents"].as_array().unwrap();
        assert_eq!(events.len(), 3);
        assert_eq!(events[1]["args"]["name"], "a\"\\");
        let expected = json!({
            "name": "fault: copy", "cat": "faults", "pid": 100, "tid": 101, "ts": 1234.567,
            "ph": "X", "dur": 2.001,
            "args": {"cpu": 3, "address": "0xfffffffffffff000", "kind": "copy", "reason": "pte_lock", "table": 1}
        });
        assert_eq!(events[2], expected);
    }

    #[test]
    fn a_process_is_called_as_its_main_thread_is_in_the_end() {
        let (_, file) = file(|writer| {
            for (thread, name) in [(100, &b""[..]), (101, b"other"), (100, b"sort")] {
                let event = Event::instant(Kind::SpfVmaAccess, 5, 0, 0);
                let mut seen = seen(event, 0);
                let of = seen.thread.as_mut().unwrap();
                (of.thread, of.name) = (thread, [0; 16]);
                of.name[..name.len()].copy_from_slice(name);
                writer.event(&seen).unwrap();
            }
        });
        let events = file["traceEvents"].as_array().unwrap();
        let names = |of: &str| {
            let named = events.iter().filter(|event| event["name"] == of);
            named
                .map(|event| event["args"]["name"].as_str().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(names("process_name"), ["thread 100", "sort"]);
        assert_eq!(names("thread_name"), ["thread 100", "other", "sort"]);
    }

    #[test]
    fn an_arrow_leads_from_sender_to_receiver_in_whatever_order_they_come() {
        let sent = seen(Event::instant(Kind::ShootdownSent, 10, 1, 5), 0);
        let received = seen(Event::slice(Kind::ShootdownReceived, 20, 30, 3, 5), 1);
        for order in [[sent, received], [received, sent]] {
            let (_, file) = file(|writer| {
                order.iter().for_each(|seen| writer.event(seen).unwrap());
            });
            let events = file["traceEvents"].as_array().unwrap();
            let ends: Vec<_> = events
                .iter()
                .filter(|event| event["cat"] == "tlb:shootdown")
                .collect();
            assert_eq!(ends.len(), 2);
            assert_eq!(
                (&ends[0]["ph"], &ends[0]["tid"], &ends[0]["ts"]),
                (&json!("s"), &json!(101), &json!(0.01))
            );
            assert_eq!(
                (&ends[1]["ph"], &ends[1]["tid"], &ends[1]["ts"]),
                (&json!("f"), &json!(2), &json!(0.02))
            );
            assert_eq!(ends[0]["id"], ends[1]["id"]);
        }
    }

    /// Where the arrow ends, if there is one.
    fn arrival(sent: u64, received: (u64, u64)) -> Option<f64> {
        let (from, until) = received;
        let (_, file) = file(|writer| {
            let received = Event::slice(Kind::ShootdownReceived, from, until, 4, 5);
            writer.event(&seen(received, 1)).unwrap();
            let sent = Event::instant(Kind::ShootdownSent, sent, 1, 5);
            writer.event(&seen(sent, 0)).unwrap();
        });
        let events = file["traceEvents"].as_array().unwrap();
        let end = events.iter().find(|event| event["ph"] == "f");
        end.map(|end| end["ts"].as_f64().unwrap() * 1000.0)
    }

    #[test]
    fn an_arrow_does_not_end_before_it_begins() {
        assert_eq!(arrival(10, (20, 30)), Some(20.0));
        assert_eq!(arrival(20, (20, 20)), Some(20.0));
        assert_eq!(arrival(25, (20, 30)), Some(25.0));
        assert_eq!(arrival(30, (20, 30)), None);
    }

    #[test]
    fn every_kind_makes_json() {
        let (_, file) = file(|writer| {
            for &kind in Kind::ALL.iter().filter(|&&kind| kind != Kind::Switch) {
                writer
                    .event(&seen(Event::slice(kind, 5, 9, u64::MAX, u64::MAX), 0))
                    .unwrap();
            }
        });
        let events = file["traceEvents"].as_array().unwrap();
        let shown = events.iter().filter(|event| event["ph"] != "M");
        assert_eq!(shown.count(), Kind::ALL.len() - 1);
        assert!(
            events
                .iter()
                .all(|event| event["ph"] != "X" || event["dur"].is_f64())
        );
    }
}
