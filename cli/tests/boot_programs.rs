//! Programs as others build them: static with glibc and musl, position-independent and not, and by
//! Go where the machine has it. They say in the kernel what they say on the host.
//! `./x test boot` runs these tests.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn assert_says_the_same(program: &Path, cpus: &str) {
    let host = Command::new(program).output().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_faultless"));
    command.args(["run", "--verify", "--timeout", "120", "--cpus", cpus, "--"]);
    let here = command.arg(program).output().unwrap();
    let said = common::stderr(&here);
    assert_eq!(host.status.code(), here.status.code(), "{said}");
    assert_eq!(common::stdout(&host), common::stdout(&here), "{said}");
}

/// `musl-gcc` knows no `-static-pie`: its start files by hand.
const MUSL_PIE: [&str; 5] = [
    "-fPIE",
    "-nostartfiles",
    "-static",
    "-Wl,-pie,--no-dynamic-linker,-z,text",
    "/usr/lib/x86_64-linux-musl/rcrt1.o",
];

fn build(compiler: &str, arguments: &[&str], folder: &Path) -> PathBuf {
    let program = folder.join("program");
    let source = root().join("tests/programs/processes.c");
    let mut command = Command::new(compiler);
    command.args(["-std=gnu11", "-O2", "-pthread"]);
    command.args(arguments).arg("-o").arg(&program).arg(source);
    assert!(command.status().unwrap().success(), "{compiler}");
    program
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn static_programs_of_both_libraries() {
    let folder = tempfile::tempdir().unwrap();
    for (compiler, arguments) in [
        ("gcc", &["-static", "-no-pie"][..]),
        ("gcc", &["-static-pie"]),
        ("musl-gcc", &["-static", "-no-pie"]),
        ("musl-gcc", &MUSL_PIE),
    ] {
        assert_says_the_same(&build(compiler, arguments, folder.path()), "2");
    }
}

/// With many goroutines and a collector. Go is not installed for this: without it there is nothing
/// to run, and the test says so.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_go_program() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let mut command = Command::new("go");
    command.args(["build", "-o"]).arg(&program).arg(".");
    command.current_dir(root().join("tests/programs/go"));
    command.envs([("CGO_ENABLED", "0"), ("GOFLAGS", "-mod=mod")]);
    command.env("GOCACHE", folder.path().join("cache"));
    match command.status() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("no Go on this machine");
        }
        status => {
            assert!(status.unwrap().success(), "go build");
            for cpus in ["1", "2", "4"] {
                assert_says_the_same(&program, cpus);
            }
        }
    }
}
