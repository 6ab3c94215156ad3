//! Paths in a checkout: what `./x` builds, and the sources of it.
//!
//! The environment variable named at a function overrides its path, for tests and for images built elsewhere.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::arch::Arch;
use crate::machine::Added;

/// The root of the checkout that this command was built from.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("cli/ lies in the root")
}

/// The kernel image (`FAULTLESS_KERNEL`).
pub fn kernel(arch: Arch) -> PathBuf {
    for_arch("FAULTLESS_KERNEL", ".faultless/kernel", arch)
}

/// The kernel image without events (`FAULTLESS_KERNEL_WITHOUT_EVENTS`).
pub fn kernel_without_events(arch: Arch) -> PathBuf {
    for_arch(
        "FAULTLESS_KERNEL_WITHOUT_EVENTS",
        ".faultless/kernel-without-events",
        arch,
    )
}

/// The folder of the packaged workloads, built for the kernel (`FAULTLESS_PROGRAMS`).
pub fn programs(arch: Arch) -> PathBuf {
    for_arch("FAULTLESS_PROGRAMS", ".faultless/bin", arch)
}

/// The folders of the host in which a program finds its interpreter and its libraries. Debian has those for another
/// architecture in a folder of their own (packages `libc6-ARCH-cross`).
pub fn libraries(arch: Arch) -> Vec<Added> {
    let mut folders = Vec::new();
    if Arch::of_host() != Some(arch) {
        folders.push(Added {
            host: format!("/usr/{}-linux-gnu/lib", arch.name()).into(),
            guest: "lib".into(),
        });
    }
    folders.push(Added::whole(Path::new("/")));
    folders
}

/// This command built so that it records its writes to memory (`FAULTLESS_RECORDER`). The recording build itself
/// does not need this path.
#[cfg(not(record))]
pub fn recorder() -> PathBuf {
    from_environment("FAULTLESS_RECORDER", "target/record/release/faultless")
}

/// The folder of other kernels, one folder for each series, and of their first process
/// (`FAULTLESS_LINUX`).
pub fn linux() -> PathBuf {
    from_environment("FAULTLESS_LINUX", ".faultless/linux")
}

/// The program that runs random programs on a kernel (`FAULTLESS_EXECUTOR`).
pub fn executor(arch: Arch) -> PathBuf {
    for_arch("FAULTLESS_EXECUTOR", ".faultless/executor", arch)
}

/// The stored programs of the differential tests.
pub fn corpus() -> PathBuf {
    root().join("tests/corpus/differential")
}

/// For AArch64 the default path ends in `-aarch64`, and the variable in `_AARCH64`.
fn for_arch(variable: &str, default: &str, arch: Arch) -> PathBuf {
    let suffix = arch.suffix();
    let variable = variable.to_owned() + &suffix.replace('-', "_").to_uppercase();
    from_environment(&variable, &format!("{default}{suffix}"))
}

fn from_environment(variable: &str, default: &str) -> PathBuf {
    env::var_os(variable).map_or_else(|| root().join(default), PathBuf::from)
}

/// The names of the packaged workloads, built or not, in order.
pub fn packaged() -> Vec<String> {
    let Ok(folder) = fs::read_dir(root().join("workloads/c")) else {
        return Vec::new();
    };
    let mut names: Vec<_> = folder
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension() == Some(OsStr::new("c")))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    names
}

/// The commit of the checkout, or "unknown".
pub fn commit() -> String {
    let output = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(root())
        .stderr(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "unknown".to_owned(),
    }
}
