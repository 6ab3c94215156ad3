//! The kernel, booted in QEMU with every packaged workload under every policy.
//!
//! `./x test boot` builds the kernel and the workloads and runs these tests.

mod common;

use common::{assert_faults_add_up, assert_run_shape, run, stderr, stdout};
use serde_json::Value;

const POLICIES: [&str; 3] = ["classic", "vma-lock", "speculative"];

/// Short forms of the packaged workloads: threads that wait for each other in turns are slow on
/// more CPUs than the host has.
const SHORT: [&[&str]; 4] = [
    &["ebizzy", "-mTRp", "-t", "4", "-S", "1"],
    &["page_fault1", "-t", "2", "-s", "1"],
    &["guard", "-r", "50"],
    &["first_write", "-n", "50", "-r", "5"],
];

/// What `./x test --full` runs.
const FULL: [&[&str]; 5] = [
    &["ebizzy", "-mTRp", "-t", "8", "-S", "5"],
    &["ebizzy", "-mTp", "--true-random", "-S", "5"],
    &["page_fault1", "-t", "4", "-s", "3", "-b", "16M", "-1"],
    &["guard"],
    &["first_write", "-n", "200", "-r", "5", "-d", "1"],
];

/// Boots a workload. Returns its run from the JSON file.
fn boot(cpus: &str, policy: &str, program: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let mut arguments = vec![
        "run",
        "--cpus",
        cpus,
        "--policy",
        policy,
        "--timeout",
        "300",
        "--verify",
    ];
    arguments.extend(["--json", path.to_str().unwrap(), "--"]);
    arguments.extend(program);
    let output = run(&arguments);
    let said = format!("{arguments:?}\n{}{}", stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{said}");
    let file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let run = file["runs"][0].clone();
    assert_run_shape(&run);
    assert_eq!(run["exit"], 0, "{said}");
    // Once with the last process, and once without it.
    let moments = run["verified"]["moments"].as_u64();
    assert!(moments.is_some_and(|moments| moments >= 2), "{said}");
    assert_eq!(run["verified"]["frames"]["pages"], 0, "{said}");
    assert!(run["counters"]["faults"].as_u64().unwrap() > 0, "{said}");
    if policy == "speculative" {
        assert_faults_add_up(&run);
    } else {
        assert_eq!(run["counters"]["spf"], 0, "{said}");
    }
    run
}

fn boot_all(cpus: &str) {
    let programs: &[&[&str]] = if faultless_tests::full() {
        &FULL
    } else {
        &SHORT
    };
    for program in programs {
        for policy in POLICIES {
            boot(cpus, policy, program);
        }
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn one_cpu() {
    boot_all("1");
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn two_cpus() {
    boot_all("2");
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn four_cpus() {
    boot_all("4");
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn ebizzy_faults_speculatively() {
    let run = boot(
        "2",
        "speculative",
        &["ebizzy", "-mTRp", "-t", "8", "-S", "2"],
    );
    let counter = |name: &str| run["counters"][name].as_f64().unwrap();
    assert!(counter("spf") >= 0.99 * counter("faults"), "{run}");
    assert_eq!(run["figure"]["name"], "records/s");
    assert!(run["figure"]["value"].as_f64().unwrap() > 0.0);
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn the_exit_status_is_passed_on() {
    let output = run(&["run", "--timeout", "60", "--", "ebizzy", "--no-such-option"]);
    let status = output.status.code().unwrap();
    assert!(
        status != 0 && status != 125,
        "{status}: {}",
        stderr(&output)
    );
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_run_that_is_stopped_is_still_written() {
    let output = run(&[
        "run",
        "--timeout",
        "4",
        "--json",
        "-",
        "--",
        "ebizzy",
        "-mTRp",
        "-S",
        "600",
    ]);
    assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
    let file: Value = serde_json::from_slice(&output.stdout).unwrap();
    let run = &file["runs"][0];
    assert_run_shape(run);
    assert_eq!(run["error"], "timed out");
    assert!(run["exit"].is_null() && run["signal"].is_null());
    // The kernel reported its counters before it was stopped.
    assert!(run["counters"]["faults"].as_u64().unwrap() > 0, "{run}");
}
