//! Builds programs with common toolchains.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `musl-gcc` has no `-static-pie`: this names the start files.
const MUSL_PIE: &[&str] = &[
    "-fPIE",
    "-nostartfiles",
    "-static",
    "-Wl,-pie,--no-dynamic-linker,-z,text",
    "/usr/lib/x86_64-linux-musl/rcrt1.o",
];

/// Both libraries, position-independent and not: a name, the compiler and its arguments.
pub const LIBRARIES: [(&str, &str, &[&str]); 4] = [
    ("glibc", "gcc", &["-static", "-no-pie"]),
    ("glibc PIE", "gcc", &["-static-pie"]),
    ("musl", "musl-gcc", &["-static", "-no-pie"]),
    ("musl PIE", "musl-gcc", MUSL_PIE),
];

/// The same with shared libraries, PIE and not.
pub const SHARED: [(&str, &str, &[&str]); 3] = [
    ("glibc", "gcc", &["-no-pie"]),
    ("glibc PIE", "gcc", &["-pie", "-fPIE"]),
    ("musl", "musl-gcc", &[]),
];

/// The folder of the whole project.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Builds `tests/programs/NAME.c` in `folder`.
pub fn build(name: &str, compiler: &str, arguments: &[&str], folder: &Path) -> PathBuf {
    let program = folder.join(name);
    let source = root().join(format!("tests/programs/{name}.c"));
    let mut command = Command::new(compiler);
    command.args(["-std=gnu11", "-O2", "-pthread"]);
    command.args(arguments).arg("-o").arg(&program).arg(source);
    assert!(command.status().unwrap().success(), "{compiler}");
    program
}

/// A program of a family of Linux's tests, if it is built; if not, prints a line about what is left out.
pub fn of_linux(family: &str, name: &str) -> Option<PathBuf> {
    let path = root()
        .join(".faultless/linux-tests")
        .join(family)
        .join(name);
    if !path.is_file() {
        println!("skipped: {name} is not built, which ./x setup linux-tests would build");
        return None;
    }
    Some(path)
}

/// Builds `tests/programs/go` in `folder`, where the machine has Go.
pub fn build_go(folder: &Path) -> Option<PathBuf> {
    let program = folder.join("program");
    let mut command = Command::new("go");
    command.args(["build", "-o"]).arg(&program).arg(".");
    command.current_dir(root().join("tests/programs/go"));
    command.envs([("CGO_ENABLED", "0"), ("GOFLAGS", "-mod=mod")]);
    // Kept: it has Go's own libraries, which take a minute to compile.
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache");
    command.env("GOCACHE", cache);
    match command.status() {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        status => {
            assert!(status.unwrap().success(), "go build");
            Some(program)
        }
    }
}
