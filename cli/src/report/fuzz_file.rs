//! The file of `fuzz differential --json`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::SCHEMA;
use super::host::Host;
use crate::arch::Arch;
use crate::paths;

/// The whole file.
#[derive(Debug, Serialize)]
pub struct FuzzFile<'a> {
    schema: u32,
    host: Host,
    commit: String,
    arch: &'static str,
    seed: u32,
    seconds: f64,
    programs: u64,
    operations: u64,
    sides: &'a [FuzzSide],
    differences: &'a [FuzzFinding],
}

/// One of our systems, compared with a Linux.
#[derive(Debug, Serialize)]
pub struct FuzzSide {
    /// Its name.
    pub name: &'static str,
    /// The name of that Linux.
    pub against: &'static str,
    /// Operations compared.
    pub operations: u64,
    /// How long its share took, while the other systems ran, too.
    pub seconds: f64,
    /// Pages that came back from its swap device, and from that of Linux, where they are counted.
    pub swapped_in: [Option<u64>; 2],
    /// Programs that differed.
    pub differences: u64,
    /// Operations that were left out, by the row of the table that says why.
    pub left_out: BTreeMap<String, u64>,
}

/// A kind of difference.
#[derive(Debug, Serialize)]
pub struct FuzzFinding {
    /// The system on which it was seen.
    pub side: &'static str,
    /// The Linux that it was compared with.
    pub against: &'static str,
    /// What such differences have in common.
    pub signature: String,
    /// The number of programs with such a difference.
    pub count: u64,
    /// The smallest such program.
    pub program: String,
    /// Where the difference shows.
    pub at: String,
    /// Our answer.
    pub ours: String,
    /// Linux's.
    pub theirs: String,
}

impl<'a> FuzzFile<'a> {
    /// A file of the results so far.
    pub fn new(
        arch: Arch,
        seed: u32,
        seconds: f64,
        (programs, operations): (u64, u64),
        sides: &'a [FuzzSide],
        differences: &'a [FuzzFinding],
    ) -> Self {
        FuzzFile {
            schema: SCHEMA,
            host: Host::this(),
            commit: paths::commit(),
            arch: arch.name(),
            seed,
            seconds,
            programs,
            operations,
            sides,
            differences,
        }
    }
}
