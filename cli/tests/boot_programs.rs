//! Programs of common toolchains: static with glibc and musl, position-independent and not, and by Go if the
//! machine has it. They print in the kernel what they print on the host. `./x test boot` runs these tests.

mod common;

use std::path::Path;
use std::process::Command;

use common::programs;
use faultless_tests::linux;

fn assert_says_the_same(program: &Path, cpus: &str) {
    // The variables that `./x run` gives.
    let variables = [("PATH", "/bin:/usr/bin"), ("HOME", "/")];
    let host = linux::finish(linux::command(program).envs(variables));
    let mut command = Command::new(env!("CARGO_BIN_EXE_faultless"));
    command.args(["run", "--verify", "--timeout", "120", "--cpus", cpus, "--"]);
    let here = command.arg(program).output().unwrap();
    let said = common::stderr(&here);
    assert_eq!(host.exit, here.status.code(), "{said} {host:?}");
    assert_eq!(host.stdout, common::stdout(&here), "{said}");
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn static_programs_of_both_libraries() {
    let folder = tempfile::tempdir().unwrap();
    for (_, compiler, arguments) in programs::LIBRARIES {
        for name in ["processes", "execs"] {
            let program = programs::build(name, compiler, arguments, folder.path());
            assert_says_the_same(&program, "2");
        }
    }
}

/// With many goroutines and a collector. Go is not installed for this: without it the test prints a line and
/// passes.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_go_program() {
    let folder = tempfile::tempdir().unwrap();
    match programs::build_go(folder.path()) {
        None => println!("no Go on this machine"),
        Some(program) => {
            for cpus in ["1", "2", "4"] {
                assert_says_the_same(&program, cpus);
            }
        }
    }
}
