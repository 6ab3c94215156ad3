//! Builds, which do nothing if nothing has changed.

mod executor;
mod image;
mod kernel;
mod workloads;

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::arch::Arch;
use crate::layout::Layout;
use crate::progress;
use crate::refusal::Refusal;
pub use executor::executor;
pub use kernel::{kernel, kernel_without_events};
pub use workloads::{linux_init, workloads};

/// Builds the command `faultless`.
pub fn command(layout: &Layout) -> Result<(), Refusal> {
    let mut cargo = cargo(layout, "build");
    cargo
        .args(["--release", "--package", "faultless-cli", "--target-dir"])
        .arg(layout.at("target"));
    run("building the command", &mut cargo)
}

/// Builds the command once more, so that it records every write to memory.
pub fn recorder(layout: &Layout) -> Result<(), Refusal> {
    let mut cargo = cargo(layout, "build");
    cargo.args(["--release", "--package", "faultless-cli", "--target-dir"]);
    cargo
        .arg(layout.at("target/record"))
        .env("RUSTFLAGS", "--cfg record");
    run("building the command with recording", &mut cargo)
}

/// Cargo in the root of the checkout, whatever the current folder is.
pub fn cargo(layout: &Layout, subcommand: &str) -> Command {
    let mut cargo = Command::new("cargo");
    cargo
        .arg(subcommand)
        .arg("--quiet")
        .current_dir(&layout.root);
    cargo
}

/// The linker for AArch64, with its C library.
const LINKER: (&str, &str) = (
    "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
    "aarch64-linux-gnu-gcc",
);

/// Makes a cargo build for Linux on an architecture, named although it may be the host's: so flags are not those of build
/// scripts.
pub fn for_linux(cargo: &mut Command, arch: Arch) {
    cargo.env("CARGO_BUILD_TARGET", arch.linux());
    if arch == Arch::AArch64 {
        cargo.env(LINKER.0, LINKER.1);
    }
}

/// Copies `from` over `to` atomically, so that a machine that boots meanwhile sees a whole file.
fn place(from: &Path, to: &Path) -> std::io::Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    let part = to.with_extension(format!("part-{}", std::process::id()));
    fs::copy(from, &part)?;
    fs::rename(&part, to)
}

/// Runs a build tool; its messages go to stderr.
fn run(what: &str, command: &mut Command) -> Result<(), Refusal> {
    match progress::run(what, command) {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Refusal::new(format!("{what} failed"))),
        Err(error) => {
            let tool = Path::new(command.get_program()).display();
            Err(Refusal::new(format!(
                "{what} failed: {tool} cannot be run: {error}"
            )))
        }
    }
}
