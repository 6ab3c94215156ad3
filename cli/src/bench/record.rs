//! Figures about written cache lines, taken by this command built with `--cfg record`.
//!
//! A recording build takes the samples itself; the normal one runs it and reads its file.

#[cfg(not(record))]
use std::process::{Command, Stdio};

#[cfg(not(record))]
use anyhow::Context as _;
use anyhow::Result;
#[cfg(not(record))]
use anyhow::bail;

use super::Samples;
#[cfg(not(record))]
use crate::paths;

/// Lines that two faults far apart both write.
pub fn shared_lines_per_fault() -> Result<Samples> {
    take("shared_lines_per_fault")
}

/// The same, for work done in batches.
pub fn shared_lines_amortised() -> Result<Samples> {
    take("shared_lines_amortised")
}

/// Lines that two CPUs both write while each maps, touches and unmaps memory in its own shard.
pub fn shared_lines_disjoint_mmap() -> Result<Samples> {
    take("shared_lines_disjoint_mmap")
}

/// Lines that two swap-ins far apart both write, from compressed memory, with slots from different clusters.
pub fn shared_lines_swap_in() -> Result<Samples> {
    take("shared_lines_swap_in")
}

/// The same, for work done in batches.
pub fn shared_lines_swap_in_amortised() -> Result<Samples> {
    take("shared_lines_swap_in_amortised")
}

#[cfg(record)]
fn take(name: &str) -> Result<Samples> {
    match name {
        "shared_lines_swap_in" => super::lines::take_swap_ins(false),
        "shared_lines_swap_in_amortised" => super::lines::take_swap_ins(true),
        "shared_lines_disjoint_mmap" => super::lines::take_mappings(),
        _ => super::lines::take(name == "shared_lines_amortised"),
    }
}

#[cfg(not(record))]
fn take(name: &str) -> Result<Samples> {
    let recorder = paths::recorder();
    if !recorder.is_file() {
        bail!(
            "the recording build is missing ({}): ./x bench builds it",
            recorder.display()
        );
    }
    let output = Command::new(&recorder)
        .args(["bench", "--json", "-", name])
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", recorder.display()))?;
    if !output.status.success() {
        bail!("the recording build failed ({})", output.status);
    }
    let file: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("the recording build wrote no JSON")?;
    let samples = file["results"][0]["samples"]
        .as_array()
        .context("it took no samples")?;
    Samples::new(
        samples
            .iter()
            .filter_map(serde_json::Value::as_f64)
            .collect(),
    )
}
