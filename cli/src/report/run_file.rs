//! The file of `run --json`.

use serde::Serialize;

use super::SCHEMA;
use crate::counters::Counters;
use crate::figure::Figure;
use crate::latencies::Latencies;
use crate::machine::{End, MachineKind, Outcome, Request};
use crate::paths;
use crate::verified::Verified;

/// The whole file.
#[derive(Debug, Serialize)]
pub struct RunFile {
    schema: u32,
    runs: Vec<Run>,
}

/// One run.
#[derive(Debug, Serialize)]
pub struct Run {
    machine: &'static str,
    arch: &'static str,
    policy: &'static str,
    cpus: u32,
    memory: u64,
    accel: &'static str,
    commit: String,
    program: Vec<String>,
    exit: Option<u8>,
    signal: Option<u8>,
    error: Option<String>,
    seconds: f64,
    figure: Option<Figure>,
    counters: Counters,
    latencies: Option<Latencies>,
    verified: Option<Verified>,
}

impl RunFile {
    /// A file of these runs.
    pub fn new(runs: Vec<Run>) -> Self {
        RunFile {
            schema: SCHEMA,
            runs,
        }
    }
}

impl Run {
    /// The entry of a run.
    pub fn new(machine: MachineKind, request: &Request, outcome: &Outcome) -> Self {
        let (exit, signal, error) = match &outcome.end {
            End::Exited(status) => (Some(*status), None, None),
            End::Signalled(signal) => (None, Some(*signal), None),
            End::TimedOut => (None, None, Some("timed out".to_owned())),
            End::Interrupted => (None, None, Some("interrupted".to_owned())),
            End::Failed(why) | End::Refused(why) => (None, None, Some(why.clone())),
        };
        Run {
            machine: machine.name(),
            arch: match machine {
                MachineKind::Kernel => request.arch.name(),
                MachineKind::Soft => std::env::consts::ARCH,
            },
            policy: request.policy.name(),
            cpus: request.cpus,
            memory: request.memory.0,
            accel: match machine {
                MachineKind::Kernel => request.accel.name(),
                MachineKind::Soft => "none",
            },
            commit: paths::commit(),
            program: request
                .program
                .iter()
                .map(|word| word.to_string_lossy().into())
                .collect(),
            exit,
            signal,
            error,
            seconds: outcome.seconds,
            figure: outcome.figure.clone(),
            counters: outcome.counters.clone(),
            latencies: outcome.latencies.clone(),
            verified: outcome.verified.clone(),
        }
    }
}
