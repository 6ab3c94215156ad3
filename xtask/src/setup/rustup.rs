//! Targets of the toolchain in use.

use std::path::Path;
use std::process::Command;

use crate::arch::Arch;
use crate::layout::Layout;
use crate::progress;
use crate::refusal::Refusal;

/// Whether the toolchain has the libraries of a target.
pub fn has(target: &str) -> bool {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .output();
    let Ok(output) = output else { return false };
    let folder = String::from_utf8_lossy(&output.stdout);
    output.status.success() && Path::new(folder.trim()).is_dir()
}

/// Adds the target of Linux's programs for an architecture, if it is missing.
pub fn provide(layout: &Layout, arch: Arch) -> Result<(), Refusal> {
    let target = arch.linux();
    if has(target) {
        return Ok(());
    }
    let mut rustup = Command::new("rustup");
    rustup.args(["target", "add", target]);
    let what = format!("fetching Rust's libraries for {target}");
    match progress::run_logged(&what, &mut rustup, &layout.log("rustup")) {
        Ok(status) if status.success() && has(target) => Ok(()),
        _ => Err(Refusal::new(format!(
            "Rust's libraries for {target} are missing: run 'rustup target add {target}', then ./x again"
        ))),
    }
}
