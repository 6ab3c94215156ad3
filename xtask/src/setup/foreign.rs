//! Programs that Debian has for AArch64, with their libraries: each fetched into a folder of its own in
//! `.faultless/debian-aarch64` and unpacked, never installed. `./x run --root` takes such a folder.

use std::fs;
use std::path::PathBuf;

use super::archive::{Archive, cannot_write};
use crate::arch::Arch;
use crate::layout::Layout;
use crate::refusal::Refusal;

/// The suite that has them.
const SUITE: &str = "bookworm";

/// The folder that a package is unpacked into.
fn folder(layout: &Layout, package: &str) -> PathBuf {
    let arch = Arch::AArch64;
    let all = layout.state().join(format!("debian{}", arch.suffix()));
    all.join(package)
}

/// Fetches a package and what it depends on, unless it is there already.
pub fn provide(layout: &Layout, package: &str) -> Result<(), Refusal> {
    let folder = folder(layout, package);
    if folder.is_dir() {
        return Ok(());
    }
    let part = layout.state().join(format!("part-{}", std::process::id()));
    let result = Archive::open(layout, SUITE, SUITE, Arch::AArch64)
        .and_then(|archive| archive.unpack_with_dependencies(layout, package, &part))
        .and_then(|()| {
            let placed = match folder.parent() {
                Some(above) => fs::create_dir_all(above),
                None => Ok(()),
            };
            placed
                .and_then(|()| fs::rename(&part, &folder))
                .map_err(|error| cannot_write(&folder, &error))
        });
    // Incomplete leftovers are useless.
    let _ = fs::remove_dir_all(&part);
    result.map_err(|why| Refusal::new(format!("{package} for AArch64 cannot be fetched: {why}")))
}
