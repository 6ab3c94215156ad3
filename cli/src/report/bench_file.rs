//! The file of `bench --json`.

use serde::Serialize;

use super::SCHEMA;
use super::host::Host;
use crate::arch::Arch;
use crate::bench::{Better, Part, Samples};
use crate::paths;

/// The whole file.
#[derive(Debug, Serialize)]
pub struct BenchFile {
    schema: u32,
    /// The machine.
    pub host: Host,
    /// The commit, and whether files have changed since.
    pub commit: String,
    /// The architecture of the machines of the kernel's figures.
    pub arch: &'static str,
    /// The figures.
    pub results: Vec<BenchResult>,
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct BenchResult {
    /// Its name.
    pub name: &'static str,
    /// The median of its samples.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// Whether more or less of it is better.
    pub better: Better,
    /// The 10th percentile of the samples.
    pub low: f64,
    /// Their 90th percentile.
    pub high: f64,
    /// All of them, in the order in which they were taken.
    pub samples: Samples,
    /// The figures that it is composed of; omitted if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

impl BenchFile {
    /// A file of these figures, taken on this host, those of the kernel on machines of `arch`.
    pub fn new(results: Vec<BenchResult>, arch: Arch) -> Self {
        BenchFile {
            schema: SCHEMA,
            host: Host::this(),
            commit: paths::commit(),
            arch: arch.name(),
            results,
        }
    }
}
