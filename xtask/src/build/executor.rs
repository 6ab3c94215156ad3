//! The program that runs the programs of `./x fuzz` on a kernel: Rust, static, with the C library
//! of rustup's own target.

use super::{cargo, for_linux, place, run};
use crate::arch::Arch;
use crate::layout::Layout;
use crate::refusal::Refusal;

/// Builds it and copies it to where the command expects it.
pub fn executor(layout: &Layout, arch: Arch) -> Result<(), Refusal> {
    let folder = layout.at("target/static");
    let mut cargo = cargo(layout, "build");
    cargo.args(["--release", "--package", "faultless-fuzz"]);
    cargo.args(["--bin", "faultless-executor", "--no-default-features"]);
    cargo.arg("--target-dir").arg(&folder);
    for_linux(&mut cargo, arch);
    // With an explicit target, the flags do not apply to build scripts.
    cargo.env("RUSTFLAGS", "-Ctarget-feature=+crt-static");
    run("building the executor", &mut cargo)?;
    let built = folder.join(arch.linux()).join("release/faultless-executor");
    place(&built, &layout.executor(arch)).map_err(|error| {
        Refusal::new(format!(
            "cannot copy the executor from {}: {error}",
            built.display()
        ))
    })
}
