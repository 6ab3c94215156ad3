//! The file of `compare --json`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::SCHEMA;
use super::host::Host;
use crate::compare::{CompareResult, Conditions, Peer};
use crate::paths;

/// The whole file.
#[derive(Debug, Serialize)]
pub struct CompareFile {
    schema: u32,
    host: Host,
    /// The commit, and whether files have changed since.
    pub commit: String,
    machine: Vec<String>,
    settings: BTreeMap<&'static str, Vec<&'static str>>,
    /// The comparisons so far.
    pub results: Vec<CompareResult>,
}

impl CompareFile {
    /// A file without results.
    pub fn new(conditions: &Conditions, peers: &[Peer]) -> Self {
        let settings = |peer: &Peer| (peer.name(), peer.settings());
        CompareFile {
            schema: SCHEMA,
            host: Host::this(),
            commit: paths::commit(),
            machine: conditions.machine(),
            settings: peers.iter().map(settings).collect(),
            results: Vec::new(),
        }
    }
}
