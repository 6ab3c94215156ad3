//! Compares figures with an older state of this repository.
//!
//! The figures come from an example program of the soft machine that both states can build. Today's file is
//! copied into the older state, which is extracted from the repository's history and built in the same way.
//! The two programs run in turn.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use super::Samples;
use crate::paths;

/// The state before ranges were locked, and before unmapping had two phases.
const ONE_LOCK: &str = "e502b141e1d2cc32ab7c4e0ebbb9e88fdb28b5cd";
const PROGRAM: &str = "munmap_small";
/// How often each runs, in turn.
const PAIRS: usize = 7;

/// A small `munmap`, of one page or of 16: today's time divided by the older one; the worse of the two ratios.
pub fn munmap_small_vs_before() -> Result<Samples> {
    let now = build(paths::root())?;
    let before = build(&state(ONE_LOCK)?)?;
    let pair = |_| {
        let (before, now) = (times(&before)?, times(&now)?);
        let ratios = now.iter().zip(before).map(|(now, before)| now / before);
        Ok(ratios.fold(0.0, f64::max))
    };
    // Warms the machine up.
    times(&now)?;
    Samples::new((0..PAIRS).map(pair).collect::<Result<_>>()?)
}

/// Extracts the files of a commit, with today's program among them.
fn state(commit: &str) -> Result<PathBuf> {
    let root = paths::root();
    let at = root.join("target/before").join(commit);
    std::fs::create_dir_all(&at).with_context(|| format!("cannot make {}", at.display()))?;
    let archive = at.with_extension("tar");
    let git = Command::new("git")
        .current_dir(root)
        .args(["archive", "--output"])
        .arg(&archive)
        .arg(commit)
        .stderr(Stdio::null())
        .status();
    if !git.is_ok_and(|status| status.success()) {
        bail!("the repository's history is needed, back to {commit}: git fetch --unshallow");
    }
    let tar = Command::new("tar")
        .arg("-xf")
        .arg(&archive)
        .arg("-C")
        .arg(&at)
        .status()
        .context("cannot start tar")?;
    ensure!(tar.success(), "cannot unpack {}", archive.display());
    let file = Path::new("crates/soft/examples")
        .join(PROGRAM)
        .with_extension("rs");
    let to = at.join(&file);
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::copy(root.join(&file), to).context("cannot copy the program")?;
    Ok(at)
}

/// Builds the program in a state of the repository.
fn build(root: &Path) -> Result<PathBuf> {
    let status = Command::new("cargo")
        .current_dir(root)
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTFLAGS")
        .args([
            "build",
            "--quiet",
            "--release",
            "--package",
            "faultless-soft",
        ])
        .args(["--example", PROGRAM])
        .status()
        .context("cannot start cargo")?;
    ensure!(
        status.success(),
        "cannot build {PROGRAM} in {}",
        root.display()
    );
    Ok(root.join("target/release/examples").join(PROGRAM))
}

/// Runs the program. Returns the nanoseconds that it prints.
fn times(program: &Path) -> Result<Vec<f64>> {
    let output = Command::new(program)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    ensure!(
        output.status.success(),
        "{PROGRAM} failed ({})",
        output.status
    );
    let printed = String::from_utf8_lossy(&output.stdout);
    let times = printed.lines().map(|line| line.trim().parse::<f64>());
    let times = times.collect::<Result<Vec<_>, _>>();
    times.context("the program printed no number")
}
