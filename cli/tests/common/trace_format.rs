//! Checks that a file follows the Trace Event Format strictly enough for Perfetto to import every event of it.
//!
//! The checker follows the format's document and the refusals of Perfetto's importer, and does not depend on
//! the code that writes the file. It finds:
//!
//! * an event without its fields
//! * a slice that begins inside another one of its track and ends outside
//! * an arrow that ends before it begins, or that lies on no slice
//! * a track without a name

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

/// A process and a thread of it.
type Track = (u64, u64);

/// An item of a track. Of items with the same start, the longest slice is first, and arrows are last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    start: i64,
    is_arrow: bool,
    /// Its length, negative.
    shortness: i64,
    place: usize,
}

#[derive(Default)]
struct Checker {
    tracks: BTreeMap<Track, Vec<Item>>,
    /// The beginning and the end of each arrow.
    arrows: HashMap<u64, [Vec<i64>; 2]>,
    threads: HashMap<Track, String>,
    processes: HashMap<u64, String>,
    faulty: Vec<String>,
}

/// The faults of a file, at most 20.
pub fn faults_of(file: &Value) -> Vec<String> {
    let mut checker = Checker::default();
    let unit = &file["displayTimeUnit"];
    if unit != "ns" && unit != "ms" {
        checker.faulty.push(format!("displayTimeUnit {unit}"));
    }
    let Some(events) = file["traceEvents"].as_array() else {
        return vec!["no traceEvents".to_owned()];
    };
    for (place, event) in events.iter().enumerate() {
        if let Err(what) = checker.take(place, event) {
            checker.faulty.push(format!("{what}: {event}"));
        }
    }
    checker.check_arrows();
    for (track, items) in std::mem::take(&mut checker.tracks) {
        checker.check_track(track, items, events);
    }
    checker.faulty.truncate(20);
    checker.faulty
}

/// Checks that a file has no fault.
#[track_caller]
pub fn assert_valid(file: &Value) {
    let faulty = faults_of(file);
    assert!(faulty.is_empty(), "{}", faulty.join("\n"));
}

/// Microseconds, which have to be whole nanoseconds.
fn nanoseconds(value: &Value, what: &'static str) -> Result<i64, &'static str> {
    let nanoseconds = value.as_f64().ok_or(what)? * 1000.0;
    let is_whole = (nanoseconds - nanoseconds.round()).abs() < 0.25;
    let is_time = (0.0..9e15).contains(&nanoseconds);
    (is_whole && is_time)
        .then_some(nanoseconds.round() as i64)
        .ok_or(what)
}

fn number(value: &Value, what: &'static str) -> Result<u64, &'static str> {
    let number = value.as_u64().filter(|&number| number <= u32::MAX.into());
    number.ok_or(what)
}

fn text<'v>(value: &'v Value, what: &'static str) -> Result<&'v str, &'static str> {
    value.as_str().filter(|text| !text.is_empty()).ok_or(what)
}

impl Checker {
    fn take(&mut self, place: usize, event: &Value) -> Result<(), &'static str> {
        let name = text(&event["name"], "no name")?;
        let process = number(&event["pid"], "no pid")?;
        let phase = text(&event["ph"], "no ph")?;
        if phase == "M" {
            let given = text(&event["args"]["name"], "names nothing")?.to_owned();
            match name {
                "process_name" => self.processes.insert(process, given),
                "thread_name" => {
                    let thread = number(&event["tid"], "no tid")?;
                    self.threads.insert((process, thread), given)
                }
                _ => return Err("unknown metadata"),
            };
            return Ok(());
        }
        let track = (process, number(&event["tid"], "no tid")?);
        text(&event["cat"], "no cat")?;
        let start = nanoseconds(&event["ts"], "no ts in µs")?;
        let args = &event["args"];
        if !(args.is_object() || args.is_null()) {
            return Err("args is no object");
        }
        let mut item = Item {
            start,
            is_arrow: false,
            shortness: 0,
            place,
        };
        match phase {
            "X" => item.shortness = -nanoseconds(&event["dur"], "no dur in µs")?,
            "i" if event["s"] == "t" => {}
            "s" | "f" => {
                item.is_arrow = true;
                let id = event["id"].as_u64().ok_or("no id")?;
                let ends = self.arrows.entry(id).or_default();
                ends[usize::from(phase == "f")].push(start);
                if phase == "f" && event["bp"] != "e" {
                    return Err("ends at the next slice instead of this one");
                }
            }
            _ => return Err("unknown ph"),
        }
        self.tracks.entry(track).or_default().push(item);
        Ok(())
    }

    fn check_arrows(&mut self) {
        for (id, [begun, ended]) in &self.arrows {
            if begun.len() != 1 || ended.len() != 1 {
                self.faulty
                    .push(format!("arrow {id} has not one end on each side"));
            } else if begun > ended {
                self.faulty.push(format!(
                    "arrow {id} goes from {} back to {}",
                    begun[0], ended[0]
                ));
            }
        }
    }

    /// Slices of a track are next to each other or one inside the other.
    fn check_track(&mut self, track: Track, mut items: Vec<Item>, events: &[Value]) {
        if !self.threads.contains_key(&track) || !self.processes.contains_key(&track.0) {
            self.faulty.push(format!("{track:?} has no name"));
        }
        items.sort_unstable();
        let mut open: Vec<Item> = Vec::new();
        for item in items {
            let end = |item: &Item| item.start - item.shortness;
            // A slice does not contain its end; an item without a length contains its start.
            let is_over = |other: &Item| {
                end(other) < item.start || end(other) == item.start && other.shortness < 0
            };
            while open.last().is_some_and(is_over) {
                open.pop();
            }
            if item.is_arrow {
                if open.is_empty() {
                    self.faulty.push(format!(
                        "an arrow stands on nothing: {}",
                        events[item.place]
                    ));
                }
                continue;
            }
            let mut around = open.iter();
            if let Some(other) =
                around.find(|&other| other.shortness < 0 && end(other) < end(&item))
            {
                self.faulty.push(format!(
                    "{} and {} overlap",
                    events[other.place], events[item.place]
                ));
                continue;
            }
            open.push(item);
        }
    }
}
