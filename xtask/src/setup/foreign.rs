//! Programs that Debian has for AArch64, with their libraries: fetched into `.faultless/debian-aarch64` and unpacked,
//! never installed. `./x run --root` takes that folder.

use std::fs;
use std::path::PathBuf;

use super::archive::{Archive, cannot_write};
use crate::arch::Arch;
use crate::layout::Layout;
use crate::refusal::Refusal;

/// The suite that has them.
const SUITE: &str = "bookworm";

/// The packages. What they depend on comes along.
const PACKAGES: [&str; 1] = ["stress-ng"];

/// The folder that they are unpacked into.
fn folder(layout: &Layout) -> PathBuf {
    let arch = Arch::AArch64;
    layout.state().join(format!("debian{}", arch.suffix()))
}

/// Fetches them, unless they are there already.
pub fn provide(layout: &Layout) -> Result<(), Refusal> {
    let folder = folder(layout);
    if folder.is_dir() {
        return Ok(());
    }
    let part = layout.state().join(format!("part-{}", std::process::id()));
    let result = Archive::open(layout, SUITE, SUITE, Arch::AArch64)
        .and_then(|archive| archive.unpack_with_dependencies(layout, &PACKAGES, &part))
        .and_then(|()| fs::rename(&part, &folder).map_err(|error| cannot_write(&folder, &error)));
    // Incomplete leftovers are useless.
    let _ = fs::remove_dir_all(&part);
    result.map_err(|why| {
        let names = PACKAGES.join(", ");
        Refusal::new(format!("{names} for AArch64 cannot be fetched: {why}"))
    })
}
