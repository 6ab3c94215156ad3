//! The options of a run, its report, and its errors.

use std::fmt;
use std::io;

use faultless_mm::{HugeMode, Mask, PerCpu, Policy};
use faultless_tdp::Options as GuestOptions;

/// The machine that a workload runs on.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// CPUs, from 1.
    pub cpus: usize,
    /// Bytes of physical memory.
    pub memory: u64,
    /// Its swap; its frames are of that memory.
    pub swap: Option<Swap>,
    /// The fault policy of the process.
    pub policy: Policy,
    /// Which mappings get huge pages.
    pub huge: HugeMode,
    /// How the memory of its guests works.
    pub guests: GuestOptions,
    /// Whether to check every TLB hit, to verify the invariants at the end, and to check that no frame leaked.
    pub check: bool,
    /// Called every few milliseconds; `true` ends the workload.
    pub stop: &'a dyn Fn() -> bool,
    /// What the machine records: events, latencies, or nothing.
    pub record: Mask,
    /// Called once, before the workload starts, with the per-CPU data that contains the tracers.
    pub started: &'a dyn Fn(&'static [PerCpu]),
}

/// A swap device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swap {
    /// Compressed memory.
    Compressed {
        /// How many pages it has room for.
        slots: u64,
    },
    /// Memory without compression.
    Ram {
        /// How many pages it has room for.
        slots: u64,
    },
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            cpus: 2,
            memory: 1 << 30,
            swap: None,
            policy: Policy::default(),
            huge: HugeMode::Never,
            guests: GuestOptions::default(),
            check: false,
            stop: &|| false,
            record: Mask::NONE,
            started: &|_| {},
        }
    }
}

/// How a workload ended, and the counters until then.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Its exit status, unless a signal or [`Options::stop`] ended it.
    pub exit: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// How long it ran.
    pub seconds: f64,
    /// Every counter of [`faultless_trace::Counter::ALL`], in that order, by name.
    pub counters: Vec<(&'static str, u64)>,
}

/// Why a workload did not start, or the result of a failed check.
#[derive(Debug)]
pub enum Error {
    /// There is no workload of that name.
    UnknownName(String),
    /// The host cannot give such a machine.
    Machine(io::Error),
    /// The machine's memory does not suffice for an address space.
    NoMemory,
    /// The machine's memory does not suffice for its swap.
    NoSwap,
    /// With [`Options::check`]: an invariant is violated.
    Violation(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::UnknownName(name) => {
                let names = crate::NAMES.join(", ");
                write!(
                    f,
                    "there is no workload {name} on the soft machine (there are: {names})"
                )
            }
            Error::Machine(error) => write!(f, "cannot make such a soft machine: {error}"),
            Error::NoMemory => f.write_str("the soft machine's memory holds no address space"),
            Error::NoSwap => f.write_str("the soft machine's memory is too small for its swap"),
            Error::Violation(what) => write!(f, "an invariant is broken: {what}"),
        }
    }
}

impl std::error::Error for Error {}
