//! The program that runs the programs of `./x fuzz` on a kernel: Rust, static, with the C library
//! of rustup's own target.

use super::{cargo, place, run};
use crate::layout::Layout;
use crate::refusal::Refusal;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds it and copies it to where the command expects it.
pub fn executor(layout: &Layout) -> Result<(), Refusal> {
    let folder = layout.at("target/static");
    let mut cargo = cargo(layout, "build");
    cargo.args(["--release", "--package", "faultless-fuzz"]);
    cargo.args(["--bin", "faultless-executor", "--no-default-features"]);
    cargo
        .args(["--target", TARGET, "--target-dir"])
        .arg(&folder);
    // With an explicit target, the flags do not apply to build scripts.
    cargo.env("RUSTFLAGS", "-Ctarget-feature=+crt-static");
    run("building the executor", &mut cargo)?;
    let built = folder.join(TARGET).join("release/faultless-executor");
    place(&built, &layout.executor()).map_err(|error| {
        Refusal::new(format!(
            "cannot copy the executor from {}: {error}",
            built.display()
        ))
    })
}
