//! Summarises a trace: counts of events, the slowest faults, and latencies.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use comfy_table::Cell;
use faultless_trace::{Kind, Latency};
use serde::Serialize;

use super::reader::{self, End, Line};
use crate::latencies::Latencies;
use crate::report::{SCHEMA, stat_table::duration};
use crate::table::{self, grouped};

/// The summary of a file.
#[derive(Debug, Serialize)]
pub struct Summary {
    schema: u32,
    /// Whether the file has its end; without, it was cut off.
    complete: bool,
    lost: u64,
    events: BTreeMap<String, Count>,
    slowest: Vec<Slow>,
    latencies: Latencies,
}

/// How often something happened, and how long it took together, in ns.
#[derive(Debug, Default, Serialize)]
struct Count {
    count: u64,
    total: u64,
}

/// A slow fault.
#[derive(Debug, Serialize)]
struct Slow {
    duration: u64,
    start: f64,
    address: String,
    kind: String,
    reason: String,
    cpu: u32,
    pid: u32,
    tid: u32,
    thread: String,
}

impl Summary {
    /// Reads a file; keeps the `slowest` slowest faults.
    pub fn of(path: &Path, slowest: usize) -> Result<Self> {
        let mut gathered = Gathered::default();
        let end = reader::read(path, |line| gathered.add(line, slowest))?;
        Ok(gathered.finish(end))
    }

    /// As text for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "{}", self.counts());
        if !self.slowest.is_empty() {
            let _ = writeln!(text, "\n{}", self.slow());
        }
        for (name, latency) in self.latencies.iter() {
            // The kinds of faults say more than all faults together.
            if name.starts_with("faults:") {
                let _ = write!(text, "\n{}", histogram(name, latency));
            }
        }
        let _ = writeln!(text, "\nlost events: {}", grouped(self.lost));
        if !self.complete {
            let _ = writeln!(
                text,
                "the file is cut off: what was recorded last is missing"
            );
        }
        text
    }

    fn counts(&self) -> comfy_table::Table {
        let header = ["event", "count", "p50", "p99", "max", "together"];
        let mut cells = vec![Cell::new(header[0])];
        cells.extend(header[1..].iter().map(table::number));
        let mut table = table::new(cells);
        let mut row = |name: &str, count: u64, total: u64| {
            let mut cells = vec![Cell::new(name), table::number(grouped(count))];
            match self.latencies.get(name) {
                Some(latency) => {
                    let times = [0.5, 0.99].map(|share| latency.percentile(share));
                    let times = [times[0], times[1], latency.max, total];
                    cells.extend(times.map(|time| table::number(duration(time))));
                }
                None => cells.extend([""; 4].map(Cell::new)),
            }
            table.add_row(cells);
        };
        for (name, count) in &self.events {
            row(name, count.count, count.total);
            if name == Kind::Fault.name() {
                let kinds = self.latencies.iter();
                for (name, latency) in kinds.filter(|(name, _)| name.starts_with("faults:")) {
                    row(name, latency.count(), latency.total);
                }
            }
        }
        table
    }

    fn slow(&self) -> comfy_table::Table {
        let header = [
            "slowest faults",
            "address",
            "kind",
            "reason",
            "cpu",
            "thread",
            "at",
        ];
        let mut table = table::new(header.map(Cell::new).to_vec());
        for slow in &self.slowest {
            table.add_row([
                table::number(duration(slow.duration)),
                table::number(&slow.address),
                Cell::new(&slow.kind),
                Cell::new(&slow.reason),
                table::number(slow.cpu),
                Cell::new(format!("{} {}", slow.tid, slow.thread)),
                table::number(format!("{:.6} s", slow.start / 1e6)),
            ]);
        }
        table
    }
}

/// A histogram with one bar for each power of two.
fn histogram(name: &str, latency: &Latency) -> String {
    const WIDTH: u64 = 50;
    let mut doublings: BTreeMap<u32, u64> = BTreeMap::new();
    for (smallest, _, count) in latency.ranges() {
        *doublings.entry(smallest.max(1).ilog2()).or_default() += count;
    }
    let most = doublings.values().copied().max().unwrap_or(1);
    let mut text = format!("{name}\n");
    let first = doublings.keys().next().copied().unwrap_or(0);
    let last = doublings.keys().last().copied().unwrap_or(0);
    for doubling in first..=last {
        let count = doublings.get(&doubling).copied().unwrap_or(0);
        // Even a single event has a visible bar.
        let bar = "█".repeat((count * WIDTH).div_ceil(most) as usize);
        let from = duration(1 << doubling);
        let line = format!("  from {from:>9} {:>11}  {bar}", grouped(count));
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[derive(Default)]
struct Gathered {
    events: BTreeMap<String, Count>,
    latencies: BTreeMap<String, Latency>,
    slowest: Vec<Line>,
    names: HashMap<(u32, u32), String>,
}

impl Gathered {
    fn add(&mut self, line: Line, slowest: usize) {
        if line.ph == "M" && !line.args.name.is_empty() && line.tid != 0 {
            self.names.insert((line.pid, line.tid), line.args.name);
            return;
        }
        if !line.is_event() {
            return;
        }
        let duration = line.duration();
        let count = self.events.entry(line.cat.clone()).or_default();
        count.count += 1;
        count.total = count.total.saturating_add(duration);
        // The time for which a thread ran is not a latency.
        if line.ph == "X" && line.cat != Kind::Switch.name() {
            self.latencies
                .entry(line.cat.clone())
                .or_default()
                .note(duration);
        }
        if line.cat == Kind::Fault.name() {
            let kind = format!("{}:{}", line.cat, line.args.kind);
            self.latencies.entry(kind).or_default().note(duration);
            self.keep(line, slowest);
        }
    }

    /// Keeps a fault if it is among the slowest, slowest first.
    fn keep(&mut self, line: Line, slowest: usize) {
        let at = self.slowest.partition_point(|other| other.dur >= line.dur);
        if at < slowest {
            self.slowest.insert(at, line);
            self.slowest.truncate(slowest);
        }
    }

    fn finish(self, end: Option<End>) -> Summary {
        let slow = |line: Line| Slow {
            duration: line.duration(),
            start: line.ts,
            thread: self
                .names
                .get(&(line.pid, line.tid))
                .cloned()
                .unwrap_or_default(),
            address: line.args.address,
            kind: line.args.kind,
            reason: line.args.reason,
            cpu: line.args.cpu,
            pid: line.pid,
            tid: line.tid,
        };
        Summary {
            schema: SCHEMA,
            complete: end.is_some(),
            lost: end.map_or(0, |end| end.lost),
            slowest: self.slowest.into_iter().map(slow).collect(),
            events: self.events,
            latencies: Latencies::named(self.latencies),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Gathered, Summary, histogram};
    use crate::trace::reader::{End, Line};
    use faultless_trace::Latency;

    fn fault(duration: f64, kind: &str) -> Line {
        let text = format!(
            "{{\"ph\":\"X\",\"cat\":\"faults\",\"ts\":1.0,\"dur\":{duration},\"pid\":100,\"tid\":101,\
             \"args\":{{\"cpu\":1,\"kind\":\"{kind}\",\"address\":\"0x1000\",\"reason\":\"none\"}}}}"
        );
        serde_json::from_str(&text).unwrap()
    }

    fn summary(durations: &[f64]) -> Summary {
        let mut gathered = Gathered::default();
        let name = r#"{"ph":"M","pid":100,"tid":101,"args":{"name":"worker"}}"#;
        gathered.add(serde_json::from_str(name).unwrap(), 3);
        durations
            .iter()
            .for_each(|&duration| gathered.add(fault(duration, "copy"), 3));
        gathered.add(fault(0.5, "reuse"), 3);
        gathered.finish(Some(End { events: 0, lost: 4 }))
    }

    #[test]
    fn the_slowest_are_kept_in_order() {
        let summary = summary(&[1.0, 5.0, 2.0, 4.0, 3.0]);
        let slowest: Vec<_> = summary.slowest.iter().map(|slow| slow.duration).collect();
        assert_eq!(slowest, [5000, 4000, 3000]);
        assert_eq!(summary.slowest[0].thread, "worker");
        assert_eq!(summary.events["faults"].count, 6);
        assert_eq!(summary.latencies.get("faults:copy").unwrap().count(), 5);
        let text = summary.text();
        assert!(
            text.contains("lost events: 4") && text.contains("101 worker"),
            "{text}"
        );
        assert!(!text.contains("cut off"), "{text}");
    }

    #[test]
    fn without_events_it_says_so_without_dividing_by_them() {
        let empty = Gathered::default().finish(None);
        assert!(empty.text().contains("cut off"));
    }

    #[test]
    fn whatever_happened_has_a_bar() {
        let mut latency = Latency::default();
        (0..1000).for_each(|_| latency.note(100));
        latency.note(1000);
        let text = histogram("x", &latency);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert_eq!(lines[1].matches('█').count(), 50);
        assert_eq!(lines[2].matches('█').count(), 0);
        assert_eq!(lines[4].matches('█').count(), 1);
    }
}
