//! The kernel, booted in QEMU with every packaged workload under every policy.
//!
//! `./x test boot` builds the kernel and the workloads and runs these tests.

mod common;

use common::workloads::{boot, boot_all};
use common::{assert_run_shape, run, stderr};
use serde_json::Value;

const ARCH: &str = "x86_64";

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn one_cpu() {
    boot_all(ARCH, "1");
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn two_cpus() {
    boot_all(ARCH, "2");
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn four_cpus() {
    boot_all(ARCH, "4");
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn ebizzy_faults_speculatively() {
    let run = boot(
        ARCH,
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
