//! Boots the packaged workloads, short or long, under every policy.

use serde_json::Value;

use super::{assert_faults_add_up, assert_run_shape, run, stderr, stdout};

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

/// Boots a workload on an architecture. Returns its run from the JSON file.
pub fn boot(arch: &str, cpus: &str, policy: &str, program: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let mut arguments = vec!["run", "--arch", arch, "--cpus", cpus, "--policy", policy];
    arguments.extend(["--timeout", "300", "--verify"]);
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

/// Boots all of them under every policy.
pub fn boot_all(arch: &str, cpus: &str) {
    let programs: &[&[&str]] = if faultless_tests::full() {
        &FULL
    } else {
        &SHORT
    };
    for program in programs {
        for policy in POLICIES {
            boot(arch, cpus, policy, program);
        }
    }
}
