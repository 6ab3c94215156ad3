//! The result of a comparison.

use anyhow::Result;
use serde::Serialize;

use crate::bench::Samples;
use crate::counters::Counters;

/// The compared quantity; less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Guest instructions for one operation, as the program counts them.
    InstructionsPerOp,
    /// Guest instructions from the program's first to its end.
    InstructionsPerRun,
    /// The host's time for one operation.
    NanosecondsPerOp,
    /// The host's time from the program's first instruction to its end.
    NanosecondsPerRun,
}

/// Events beside the figure; `None` where a kernel does not count them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counts {
    /// Page faults of the program and its children.
    pub faults: Option<u64>,
    /// TLB flushes that a CPU was asked for by another.
    pub flushes_received: Option<u64>,
    /// The same for each operation; also `None` if the figure is no rate.
    pub flushes_per_op: Option<f64>,
    /// Switches between threads in the whole machine.
    pub context_switches: Option<u64>,
}

/// One program against one Linux.
#[derive(Clone, Debug, Serialize)]
pub struct CompareResult {
    /// The workload, or the program's file.
    pub name: String,
    /// The program and its arguments.
    pub program: Vec<String>,
    /// What it is compared with: a Linux, or our kernel under another policy.
    pub peer: &'static str,
    /// The release of that Linux, as it reports it.
    pub release: Option<String>,
    /// The version of its package.
    pub version: String,
    /// What is compared; null if there was nothing.
    pub metric: Option<Metric>,
    /// CPUs of both machines.
    pub cpus: u32,
    /// Their swap, if they have any: its size and its device.
    pub swap: Option<String>,
    /// Their figure divided by ours, the median of the pairs: more than 1 is better for us.
    pub ratio: Option<f64>,
    /// The 10th percentile of the ratios.
    pub low: Option<f64>,
    /// Their 90th percentile.
    pub high: Option<f64>,
    /// The figures of our kernel.
    pub ours: Vec<f64>,
    /// Those of Linux, in the same order.
    pub theirs: Vec<f64>,
    /// Events in the last run of our kernel.
    pub our_counts: Counts,
    /// Events in the last run of Linux.
    pub their_counts: Counts,
    /// Why there is no ratio, or no more pairs.
    pub error: Option<String>,
}

/// The ratios of pairs: the median, the 10th and the 90th percentile.
pub fn ratio(ours: &[f64], theirs: &[f64]) -> Result<[f64; 3]> {
    let pairs = ours.iter().zip(theirs);
    let ratios = Samples::new(pairs.map(|(ours, theirs)| theirs / ours).collect())?;
    Ok([
        ratios.median(),
        ratios.percentile(10.0),
        ratios.percentile(90.0),
    ])
}

impl Metric {
    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Metric::InstructionsPerOp => "instructions_per_op",
            Metric::InstructionsPerRun => "instructions_per_run",
            Metric::NanosecondsPerOp => "nanoseconds_per_op",
            Metric::NanosecondsPerRun => "nanoseconds_per_run",
        }
    }

    /// The quantity that the machine's clock shows, for one operation or a whole run.
    pub const fn of(cpus: u32, per_op: bool) -> Self {
        match (cpus, per_op) {
            (1, true) => Metric::InstructionsPerOp,
            (1, false) => Metric::InstructionsPerRun,
            (_, true) => Metric::NanosecondsPerOp,
            (_, false) => Metric::NanosecondsPerRun,
        }
    }
}

impl Counts {
    /// The counts of one run of about `operations` operations.
    pub fn of(counters: &Counters, operations: Option<f64>) -> Self {
        let flushes_received = counters.named("nr_tlb_remote_flush_received");
        let per_op = |flushes: u64| Some(flushes as f64 / operations?);
        Counts {
            faults: counters.named("faults"),
            flushes_received,
            flushes_per_op: flushes_received.and_then(per_op),
            context_switches: counters.named("context_switches"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Metric, ratio};

    #[test]
    fn more_than_one_is_better_for_us() {
        let [median, low, high] = ratio(&[100.0, 100.0, 200.0], &[200.0, 150.0, 200.0]).unwrap();
        assert_eq!(median, 1.5);
        assert!((1.0..1.5).contains(&low) && (1.5..=2.0).contains(&high));
    }

    #[test]
    fn no_pair_is_no_ratio() {
        assert!(ratio(&[1.0], &[]).is_err());
        assert!(ratio(&[0.0], &[0.0]).is_err());
    }

    #[test]
    fn names_are_those_of_the_file() {
        for cpus in [1, 4] {
            for per_op in [true, false] {
                let metric = Metric::of(cpus, per_op);
                let text = serde_json::to_string(&metric).unwrap();
                assert_eq!(text, format!("\"{}\"", metric.name()));
            }
        }
    }
}
