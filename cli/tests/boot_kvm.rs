//! `/dev/kvm` in the kernel: small guests, and what their programs must not be able to do; the machine is sound
//! afterwards. `./x test boot` runs this.

mod common;

use std::path::Path;

use common::{programs, run, stderr, stdout};

fn passes(program: &Path, cpus: u32, verify: &str, last_line: &str) {
    let line = format!(
        "run --cpus {cpus} {verify} --timeout 300 -- {}",
        program.display()
    );
    let output = run(&line.split_whitespace().collect::<Vec<_>>());
    let said = format!("{}{}", stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{cpus} CPUs: {said}");
    assert_eq!(stdout(&output).lines().last(), Some(last_line), "{said}");
}

/// Exits, signals, threads, and bad input.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn guests() {
    let folder = tempfile::tempdir().unwrap();
    let program = programs::build("guests", "gcc", &["-static"], folder.path());
    for cpus in [1, 2, 4] {
        passes(&program, cpus, "--verify", "guests are well");
    }
}
