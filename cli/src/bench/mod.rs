//! Benches: named figures, each a list of samples.
//!
//! The table in `registry` lists them; a bench is a function that takes samples. Ratios are taken pair by
//! pair in one run, because machines are shared and noisy.

mod before;
mod growth;
mod kernel;
#[cfg(record)]
mod lines;
mod record;
mod registry;
mod soft;
mod stats;

use anyhow::Result;
use serde::Serialize;

use crate::arch::Arch;

pub use registry::{BENCHES, find};
pub use stats::{Part, Samples};

/// Which direction is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
}

/// What a bench runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The soft machine, or the memory core alone.
    Soft,
    /// The kernel, in QEMU.
    Kernel,
    /// The kernel and one without events, in QEMU.
    KernelPair,
    /// A build of this command that records which lines are written.
    Record,
}

/// One figure that can be taken.
pub struct Bench {
    /// Its name on the command line and in files.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Which direction is good.
    pub better: Better,
    /// What it runs on.
    pub group: Group,
    /// Its description, in one line.
    pub about: &'static str,
    /// Takes the samples, at least one.
    pub take: Take,
}

/// How samples are taken.
#[derive(Clone, Copy)]
pub enum Take {
    /// On the host's processor.
    Here(fn() -> Result<Samples>),
    /// On a machine of an architecture.
    Booted(fn(Arch) -> Result<Samples>),
}

impl Bench {
    /// Takes the samples, on a machine of `arch` if one is booted.
    ///
    /// # Errors
    /// The figure cannot be taken.
    pub fn samples(&self, arch: Arch) -> Result<Samples> {
        match self.take {
            Take::Here(take) => take(),
            Take::Booted(take) => take(arch),
        }
    }

    /// Whether it is taken on a machine that is booted, whose architecture can be chosen.
    pub fn is_booted(&self) -> bool {
        matches!(self.take, Take::Booted(_))
    }
}

impl Group {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Soft => "soft",
            Group::Kernel | Group::KernelPair => "kernel",
            Group::Record => "record",
        }
    }
}
