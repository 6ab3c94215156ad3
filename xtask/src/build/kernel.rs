//! The kernel image.

use std::fs;
use std::path::Path;

use super::image::flatten;
use super::{place, run};
use crate::arch::Arch;
use crate::layout::Layout;
use crate::refusal::Refusal;
use crate::setup::bare_metal::BareMetal;

/// The name of the kernel's binary.
const BINARY: &str = "faultless-kernel";

/// Builds the kernel and copies the image to where the command expects it.
pub fn kernel(layout: &Layout, arch: Arch) -> Result<(), Refusal> {
    build(layout, "building the kernel", &[], "kernel", arch)
}

/// The same without events, in a folder of its own, so that neither build invalidates the other.
pub fn kernel_without_events(layout: &Layout, arch: Arch) -> Result<(), Refusal> {
    let what = "building the kernel without events";
    let features = ["--no-default-features"];
    build(layout, what, &features, "kernel-without-events", arch)
}

fn build(
    layout: &Layout,
    what: &str,
    features: &[&str],
    name: &str,
    arch: Arch,
) -> Result<(), Refusal> {
    let part = if features.is_empty() {
        ""
    } else {
        "without-events"
    };
    let (mut cargo, folder) = BareMetal::choose(arch)?.cargo(layout, "build", part);
    cargo.args(["--release", "--quiet"]).args(features);
    run(what, &mut cargo)?;
    let built = folder.join(arch.bare_metal()).join("release").join(BINARY);
    let image = layout.state().join(format!("{name}{}", arch.suffix()));
    let copied = |to: &Path| {
        place(&built, to).map_err(|error| {
            let built = built.display();
            Refusal::new(format!("cannot copy the kernel from {built}: {error}"))
        })
    };
    match arch {
        Arch::X86_64 => copied(&image),
        Arch::AArch64 => {
            // Beside it the ELF file, for debuggers.
            copied(&image.with_extension("elf"))?;
            make_raw(&built, &image)
        }
    }
}

/// Writes the raw image of the ELF file `built`.
fn make_raw(built: &Path, image: &Path) -> Result<(), Refusal> {
    let refuse = |why: &dyn std::fmt::Display| {
        let image = image.display();
        Refusal::new(format!("cannot make the image {image}: {why}"))
    };
    let file = fs::read(built).map_err(|error| refuse(&error))?;
    let raw = flatten(&file).map_err(|why| refuse(&why))?;
    let part = image.with_extension(format!("raw-{}", std::process::id()));
    let written = fs::write(&part, raw).and_then(|()| fs::rename(&part, image));
    written.map_err(|error| refuse(&error))
}
