//! `/dev/kvm` in the kernel: small guests, and what their programs must not be able to do; the machine is sound
//! afterwards. `./x test boot` runs this.

mod common;

use std::path::Path;

use common::{programs, run, stderr, stdout};

fn passes(program: &Path, cpus: u32, options: &str, last_line: &str) {
    let line = format!(
        "run --cpus {cpus} {options} --timeout 300 -- {}",
        program.display()
    );
    let output = run(&line.split_whitespace().collect::<Vec<_>>());
    let said = format!("{}{}", stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{cpus} CPUs: {said}");
    assert_eq!(stdout(&output).lines().last(), Some(last_line), "{said}");
}

/// vCPUs store while the program discards, protects, moves, forks and logs their memory: both see the same, and every
/// entry of the guest shows what its host shows.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn guests_beside_changes_of_their_memory() {
    let folder = tempfile::tempdir().unwrap();
    let program = programs::build("guest_host", "gcc", &["-static"], folder.path());
    for (cpus, kvm) in [
        (1, "--kvm"),
        (2, "--kvm"),
        (4, "--kvm"),
        (2, "--kvm=tdp_mmu=N"),
        (2, "--kvm --huge always"),
        (2, "--kvm=tdp_mmu=N,eager_page_split=N --huge always"),
    ] {
        let options = format!("{kvm} --verify");
        passes(&program, cpus, &options, "guests and host agree");
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

/// Dirty rings: full ones, bad input, and several vCPUs.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn rings_of_guests() {
    let folder = tempfile::tempdir().unwrap();
    let program = programs::build("guest_rings", "gcc", &["-static"], folder.path());
    for (cpus, kvm) in [
        (1, "--kvm"),
        (2, "--kvm"),
        (2, "--kvm=tdp_mmu=N,dirty_bits=Y"),
    ] {
        let options = format!("{kvm} --verify");
        passes(&program, cpus, &options, "rings are well");
    }
}
