//! Reads a file of `trace` line by line, because it may be larger than memory.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::perfetto::BEGINNING;

/// The longest line of a file that is read.
const LONGEST: u64 = 1 << 20;

/// An event as it stands in a file.
#[derive(Debug, Deserialize)]
pub struct Line {
    /// `X`: it took time; `i`: it took none; `M`, `s`, `f`: no event.
    pub ph: String,
    /// The event's name.
    #[serde(default)]
    pub cat: String,
    /// When it began, in µs.
    #[serde(default)]
    pub ts: f64,
    /// How long it took, in µs.
    #[serde(default)]
    pub dur: f64,
    /// Its process.
    #[serde(default)]
    pub pid: u32,
    /// Its thread.
    #[serde(default)]
    pub tid: u32,
    /// Its fields.
    #[serde(default)]
    pub args: Args,
}

/// The fields of an event that are used.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Args {
    /// The CPU.
    pub cpu: u32,
    /// The name of a track.
    pub name: String,
    /// The address, in hexadecimal.
    pub address: String,
    /// How a fault ended.
    pub kind: String,
    /// Why a fault fell back.
    pub reason: String,
}

impl Line {
    /// Whether it is an event, and not a name or one end of an arrow.
    pub fn is_event(&self) -> bool {
        matches!(self.ph.as_str(), "X" | "i")
    }

    /// How long it took, in ns.
    pub fn duration(&self) -> u64 {
        // Our files have no negative or infinite durations; the cast saturates.
        (self.dur * 1000.0).round() as u64
    }
}

/// The totals that follow the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct End {
    /// Events in the file.
    pub events: u64,
    /// Events that were lost.
    pub lost: u64,
}

/// Calls `each` with every line of the file. Returns the totals at its end; `None` if they are missing.
pub fn read(path: &Path, each: impl FnMut(Line)) -> Result<Option<End>> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
    lines(BufReader::with_capacity(1 << 20, file), each).with_context(|| name.to_string())
}

fn lines(mut input: impl BufRead, mut each: impl FnMut(Line)) -> Result<Option<End>> {
    let mut text = Vec::new();
    let mut number = 0u64;
    let mut end = None;
    loop {
        text.clear();
        let length = std::io::Read::take(&mut input, LONGEST)
            .read_until(b'\n', &mut text)
            .context("cannot be read")?;
        if length == 0 {
            break;
        }
        number += 1;
        let line = text.trim_ascii();
        if number == 1 {
            if !line.starts_with(BEGINNING.as_bytes()) {
                bail!("this is no file of ./x trace");
            }
            continue;
        }
        if let Some(found) = line.strip_prefix(b"\"faultless\":") {
            let found = found.strip_suffix(b"}").unwrap_or(found);
            end = Some(serde_json::from_slice(found).with_context(|| broken(number))?);
            break;
        }
        let is_cut = !text.ends_with(b"\n");
        let line = line
            .strip_suffix(b",")
            .or(line.strip_suffix(b"]"))
            .unwrap_or(line);
        // The line before the end closes the list: `},` or `}],`.
        let line = line.strip_suffix(b"]").unwrap_or(line);
        match serde_json::from_slice(line) {
            Ok(line) => each(line),
            // The writer was stopped in the middle of this line.
            Err(_) if is_cut || line.is_empty() => {}
            Err(error) => return Err(error).with_context(|| broken(number)),
        }
    }
    if number == 0 {
        bail!("this is no file of ./x trace");
    }
    Ok(end)
}

fn broken(number: u64) -> String {
    format!("line {number} is damaged")
}

#[cfg(test)]
mod tests {
    use super::{End, lines};
    use crate::trace::perfetto::Writer;
    use crate::trace::recorder::Recorded;
    use crate::trace::seen::Seen;
    use faultless_trace::{Event, How, Kind, Reason};

    fn file(events: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, &serde_json::json!({"cpus": 2})).unwrap();
        for n in 0..events {
            let event = Event::fault(n * 10, n * 10 + n, n << 12, How::Reuse, false, Reason::None);
            let seen = Seen {
                event,
                cpu: 1,
                thread: None,
            };
            writer.event(&seen).unwrap();
        }
        let written = events;
        writer.finish(Recorded { written, lost: 3 }, None).unwrap();
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        for events in [0, 1, 5] {
            let mut seen = Vec::new();
            let end = lines(file(events).as_slice(), |line| seen.push(line)).unwrap();
            assert_eq!(end, Some(End { events, lost: 3 }));
            let faults: Vec<_> = seen.iter().filter(|line| line.is_event()).collect();
            assert_eq!(faults.len() as u64, events);
            for (n, line) in (0u64..).zip(faults) {
                assert_eq!(
                    (line.duration(), line.cat.as_str()),
                    (n, Kind::Fault.name())
                );
                assert_eq!((line.args.cpu, line.args.kind.as_str()), (1, "reuse"));
                assert_eq!(line.args.address, format!("{:#x}", n << 12));
            }
        }
    }

    #[test]
    fn a_file_that_is_cut_anywhere_is_read_as_far_as_it_goes() {
        let whole = file(3);
        let first = whole.iter().position(|&byte| byte == b'\n').unwrap();
        for length in first + 1..whole.len() - 1 {
            let mut events = 0;
            let end = lines(&whole[..length], |line| {
                events += u64::from(line.is_event())
            });
            assert!(events <= 3);
            // Where the end itself is cut it is damaged; before, it is missing.
            if let Ok(Some(end)) = end {
                assert_eq!(end.events, 3);
            }
        }
    }

    #[test]
    fn other_files_are_refused() {
        for text in ["", "{}", "[1,2]", "\x7fELF\n\0\0", "{\"traceEvents\":[\n"] {
            let error = lines(text.as_bytes(), |_| {}).unwrap_err();
            assert!(error.to_string().contains("no file of ./x trace"), "{text}");
        }
        let damaged = String::from_utf8(file(3))
            .unwrap()
            .replace("\"ph\":\"X\"", "{");
        assert!(lines(damaged.as_bytes(), |_| {}).is_err());
    }
}
