//! The kernel image.

use std::path::Path;

use super::{place, run};
use crate::layout::Layout;
use crate::refusal::Refusal;
use crate::setup::bare_metal::{BareMetal, TARGET};

/// The name of the kernel's binary.
const BINARY: &str = "faultless-kernel";

/// Builds the kernel and copies the image to where the command expects it.
pub fn kernel(layout: &Layout) -> Result<(), Refusal> {
    build(layout, "building the kernel", &[], &layout.kernel())
}

/// The same without events, in a folder of its own, so that neither build invalidates the other.
pub fn kernel_without_events(layout: &Layout) -> Result<(), Refusal> {
    let image = layout.state().join("kernel-without-events");
    let what = "building the kernel without events";
    build(layout, what, &["--no-default-features"], &image)
}

fn build(layout: &Layout, what: &str, features: &[&str], image: &Path) -> Result<(), Refusal> {
    let part = if features.is_empty() {
        ""
    } else {
        "without-events"
    };
    let (mut cargo, folder) = BareMetal::choose()?.cargo(layout, "build", part);
    cargo.args(["--release", "--quiet"]).args(features);
    run(what, &mut cargo)?;
    let built = folder.join(TARGET).join("release").join(BINARY);
    place(&built, image).map_err(|error| {
        Refusal::new(format!(
            "cannot copy the kernel from {}: {error}",
            built.display()
        ))
    })
}
