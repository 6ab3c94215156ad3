//! The packaged workloads: C programs, built static with musl.
//!
//! One program for each `workloads/c/NAME.c`. A program is built again when it is older than any
//! source or header there, or than this tool, which holds the compiler's flags.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use super::run;
use crate::layout::Layout;
use crate::refusal::Refusal;

const FLAGS: &[&str] = &[
    "-std=gnu11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-static",
    "-pthread",
];

/// Builds every packaged workload that is out of date.
pub fn workloads(layout: &Layout) -> Result<(), Refusal> {
    let refuse = |error: io::Error| Refusal::new(format!("cannot build the workloads: {error}"));
    let sources = sources(&layout.program_sources()).map_err(refuse)?;
    let tool = std::env::current_exe().map_err(refuse)?;
    let newest = sources
        .iter()
        .chain([&tool])
        .filter_map(|file| changed(file))
        .max();
    fs::create_dir_all(layout.programs()).map_err(refuse)?;
    for source in sources
        .iter()
        .filter(|file| file.extension().is_some_and(|e| e == "c"))
    {
        let name = source.file_stem().unwrap_or_default();
        let program = layout.programs().join(name);
        if changed(&program).is_some_and(|time| Some(time) >= newest) {
            continue;
        }
        let part = program.with_extension(format!("part-{}", std::process::id()));
        let mut compiler = Command::new("musl-gcc");
        compiler.args(FLAGS).arg("-o").arg(&part).arg(source);
        run(&format!("building {}", name.display()), &mut compiler)?;
        fs::rename(&part, &program).map_err(refuse)?;
    }
    Ok(())
}

/// The C files and headers of `folder`, in order.
fn sources(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "c" || extension == "h")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn changed(file: &Path) -> Option<SystemTime> {
    fs::metadata(file)
        .and_then(|metadata| metadata.modified())
        .ok()
}
