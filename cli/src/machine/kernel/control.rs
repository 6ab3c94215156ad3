//! The control channel: what the kernel says about a run, one JSON object a line.
//!
//! The last line that can be read counts, so that a kernel may report more than once.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::counters::Counters;

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
    counters: Map<String, Value>,
}

impl Report {
    /// Reads all that arrived; `None` when the kernel never got to say anything.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut lines = bytes.split(|&byte| byte == b'\n').rev();
        lines.find_map(|line| serde_json::from_slice(line).ok())
    }

    /// Every counter, those that the kernel did not name at 0.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        for (name, value) in &self.counters {
            counters.set(name, value.as_u64().unwrap_or(0));
        }
        counters
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
    fn silence_is_no_report() {
        assert!(Report::parse(b"").is_none());
        assert!(Report::parse(b"not json\n").is_none());
    }
}
