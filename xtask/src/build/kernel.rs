//! The kernel image.

use std::fs;
use std::path::Path;

use super::run;
use crate::layout::Layout;
use crate::refusal::Refusal;
use crate::setup::bare_metal::{BareMetal, TARGET};

/// The name of the kernel's binary.
const BINARY: &str = "faultless-kernel";

/// Builds the kernel and puts the image where the command looks for it.
pub fn kernel(layout: &Layout) -> Result<(), Refusal> {
    let (mut cargo, folder) = BareMetal::choose()?.cargo(layout, "build");
    run("building the kernel", cargo.args(["--release", "--quiet"]))?;
    let built = folder.join(TARGET).join("release").join(BINARY);
    place(&built, &layout.kernel()).map_err(|error| {
        Refusal::new(format!(
            "cannot copy the kernel from {}: {error}",
            built.display()
        ))
    })
}

/// Copies `from` over `to` in one step, so that a machine that boots meanwhile sees a whole image.
fn place(from: &Path, to: &Path) -> std::io::Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    let part = to.with_extension(format!("part-{}", std::process::id()));
    fs::copy(from, &part)?;
    fs::rename(&part, to)
}
