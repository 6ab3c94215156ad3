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

/// vCPUs store while the program discards, protects, moves, forks and logs their memory: both see the same, and every
/// entry of the guest shows what its host shows.
///
/// QEMU 7.2 with several CPUs sometimes stores a guest's state twice when it leaves, and so loses it. The program then
/// says so, and the test tries again.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn guests_beside_changes_of_their_memory() {
    const LOST: &str = "the processor has lost the state of a guest";
    let folder = tempfile::tempdir().unwrap();
    let program = programs::build("guest_host", "gcc", &["-static"], folder.path());
    let program = program.to_str().unwrap();
    for (cpus, kvm) in [
        ("1", "--kvm"),
        ("2", "--kvm"),
        ("4", "--kvm"),
        ("2", "--kvm=tdp_mmu=N"),
    ] {
        let ends_well = (0..8).any(|_| {
            let line = [
                "run",
                "--cpus",
                cpus,
                kvm,
                "--verify",
                "--timeout",
                "300",
                "--",
                program,
            ];
            let output = run(&line);
            let said = format!("{}{}", stdout(&output), stderr(&output));
            let is_lost = cpus != "1" && said.contains(LOST);
            assert!(is_lost || output.status.success(), "{cpus} CPUs: {said}");
            !is_lost
        });
        assert!(ends_well, "{cpus} CPUs: the state is lost each time");
    }
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
