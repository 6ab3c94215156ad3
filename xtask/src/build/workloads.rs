//! The packaged workloads: C programs, built static with musl.
//!
//! One program for each `workloads/c/NAME.c`. A program is rebuilt if it is older than any
//! file there, or than this tool, which contains the compiler's flags.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use super::run;
use crate::arch::Arch;
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
pub fn workloads(layout: &Layout, arch: Arch) -> Result<(), Refusal> {
    let folder = layout.program_sources();
    let sources = files_in(&folder).map_err(|error| refuse(&error))?;
    for source in sources.iter().filter(|file| is_program(file, &folder)) {
        let name = source.file_stem().unwrap_or_default();
        compile(
            layout,
            source,
            &layout.programs(arch).join(name),
            &sources,
            arch,
        )?;
    }
    Ok(())
}

/// Builds the program that a Linux beside our kernel starts first.
pub fn linux_init(layout: &Layout, arch: Arch) -> Result<(), Refusal> {
    let source = layout.linux_init_source();
    let sources = files_in(source.parent().unwrap_or(&source));
    let mut sources = sources.map_err(|error| refuse(&error))?;
    sources.push(layout.program_sources().join("vfork.h"));
    let program = layout.linux().join(format!("init{}", arch.suffix()));
    compile(layout, &source, &program, &sources, arch)
}

/// Compiles one program, unless it is newer than its source, `others` and this tool.
fn compile(
    layout: &Layout,
    source: &Path,
    program: &Path,
    others: &[PathBuf],
    arch: Arch,
) -> Result<(), Refusal> {
    let tool = std::env::current_exe().map_err(|error| refuse(&error))?;
    let files = others.iter().map(PathBuf::as_path);
    let newest = files.chain([source, &tool]).filter_map(changed).max();
    if changed(program).is_some_and(|time| Some(time) >= newest) {
        return Ok(());
    }
    if let Some(folder) = program.parent() {
        fs::create_dir_all(folder).map_err(|error| refuse(&error))?;
    }
    let name = source.file_stem().unwrap_or_default();
    let part = program.with_extension(format!("part-{}", std::process::id()));
    let mut compiler = Command::new(match arch {
        Arch::X86_64 => "musl-gcc".into(),
        Arch::AArch64 => layout.musl().join("musl-gcc"),
    });
    compiler.args(FLAGS).arg("-o").arg(&part).arg(source);
    run(&format!("building {}", name.display()), &mut compiler)?;
    fs::rename(&part, program).map_err(|error| refuse(&error))
}

fn refuse(error: &io::Error) -> Refusal {
    Refusal::new(format!("cannot build the workloads: {error}"))
}

/// Whether a C file is a program: those directly in the folder are, those in its folders are parts of one.
fn is_program(file: &Path, folder: &Path) -> bool {
    file.parent() == Some(folder) && file.extension().is_some_and(|extension| extension == "c")
}

/// All files below `folder`, in order.
fn files_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_in(&path)?);
        } else {
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
