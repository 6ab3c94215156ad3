//! The programs in `tests/programs`, compiled as the tests need them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::arch::Arch;

/// The root of the project.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the root")
        .to_path_buf()
}

/// Returns a new folder for each call.
pub fn scratch(name: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = root().join(format!(
        ".faultless/tests/{name}-{}-{number}",
        std::process::id()
    ));
    fs::create_dir_all(&folder).expect("a folder for temporary files");
    folder
}

/// Compiles `tests/programs/NAME.c` for the machines.
pub fn compile(name: &str) -> Vec<u8> {
    compile_as(name, Arch::of_machines(), &["-static"])
}

/// Compiles it for the host.
pub fn compile_for_the_host(name: &str) -> Vec<u8> {
    compile_as(name, Arch::X86_64, &["-static"])
}

/// Compiles it as a dynamically linked program.
pub fn compile_dynamic(name: &str, arch: Arch) -> Vec<u8> {
    compile_as(name, arch, &["-fPIE", "-pie"])
}

fn compile_as(name: &str, arch: Arch, how: &[&str]) -> Vec<u8> {
    let folder = scratch(&name.replace('/', "-"));
    let program = folder.join("program");
    let source = root().join(format!("tests/programs/{name}.c"));
    let status = Command::new(arch.compiler())
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"])
        .args(how)
        .args(arch.flags())
        .args(["-pthread", "-o"])
        .args([&program, &source])
        .status()
        .expect("the compiler runs");
    assert!(status.success(), "{name}.c does not compile");
    let content = fs::read(&program).expect("the program is there");
    fs::remove_dir_all(folder).expect("the folder is ours");
    content
}
