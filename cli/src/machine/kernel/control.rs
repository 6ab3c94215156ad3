//! The control channel: the kernel's report about a run, one JSON object a line.
//!
//! The last line that can be parsed counts, so that a kernel may report more than once.

use faultless_trace::{Latency, Measure};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::counters::Counters;
use crate::latencies::Latencies;
use crate::verified::Verified;

/// What the kernel reports.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The program's exit status, if it ended by itself.
    pub exit: Option<u8>,
    /// The signal that killed it.
    pub signal: Option<u8>,
    /// How long it ran.
    pub seconds: f64,
    /// Why the kernel did not run the program, or stopped.
    pub error: Option<String>,
    /// The release of the kernel, if it is another one than ours.
    pub release: Option<String>,
    /// What was verified.
    pub verified: Option<Verified>,
    counters: Map<String, Value>,
    latencies: Option<Vec<Measured>>,
}

/// The latencies of one measure.
#[derive(Clone, Debug, Deserialize)]
struct Measured {
    /// Its index among all measures.
    measure: usize,
    max: u64,
    total: u64,
    buckets: Vec<(usize, u64)>,
}

impl Report {
    /// Parses all that arrived; `None` if the kernel reported nothing.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut lines = bytes.split(|&byte| byte == b'\n').rev();
        lines.find_map(|line| serde_json::from_slice(line).ok())
    }

    /// Every counter; 0 if the kernel did not report it.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        for (name, value) in &self.counters {
            counters.set(name, value.as_u64().unwrap_or(0));
        }
        counters
    }

    /// The latencies, if they were measured.
    pub fn latencies(&self) -> Option<Latencies> {
        let measured = self.latencies.as_ref()?;
        Some(Latencies::new(measured.iter().filter_map(|measured| {
            let mut latency = Latency::default();
            (latency.max, latency.total) = (measured.max, measured.total);
            for &(bucket, count) in &measured.buckets {
                latency.add(bucket, count);
            }
            Some((Measure::all().nth(measured.measure)?, latency))
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::Report;
    use faultless_trace::Counter;

    #[test]
    fn the_last_whole_line_counts() {
        let text = br#"{"seconds":1,"counters":{"faults":5}}
{"exit":3,"signal":null,"seconds":2.5,"counters":{"faults":7},"unknown_syscalls":[334]}
{"exit":0,"sig"#;
        let report = Report::parse(text).unwrap();
        assert_eq!(
            (report.exit, report.signal, report.seconds),
            (Some(3), None, 2.5)
        );
        assert_eq!(report.counters().get(Counter::Faults), 7);
    }

    #[test]
    fn latencies_come_by_the_number_of_what_was_measured() {
        let text = br#"{"latencies":[{"measure":1,"max":9,"total":17,"buckets":[[8,1],[9,1]]}]}"#;
        let latencies = Report::parse(text).unwrap().latencies().unwrap();
        assert_eq!(latencies.get("faults:first_touch").unwrap().max, 9);
        assert_eq!(latencies.get("faults").unwrap().count(), 2);
        assert!(Report::parse(b"{}").unwrap().latencies().is_none());
    }

    #[test]
    fn silence_is_no_report() {
        assert!(Report::parse(b"").is_none());
        assert!(Report::parse(b"not json\n").is_none());
    }
}
