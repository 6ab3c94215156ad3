//! Idle pages in the kernel, its own and those of guests. `./x test boot` runs this.

mod common;

use std::fs;
use std::path::Path;

use common::trace_format::assert_valid;
use common::{programs, run, stderr, stdout};
use serde_json::Value;

/// Runs the program, which has to succeed. Returns its counters.
fn counters(program: &Path, options: &str, arguments: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let line = format!(
        "run --verify --timeout 300 {options} --json {} -- {} {arguments}",
        file.display(),
        program.display()
    );
    let output = run(&line.split_whitespace().collect::<Vec<_>>());
    let said = format!("{}{}", stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{options}: {said}");
    let last = stdout(&output).lines().last().map(str::to_owned);
    assert_eq!(last.as_deref(), Some("idle pages are known"), "{said}");
    let file: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    file["runs"][0]["counters"].clone()
}

/// Own pages, shared ones, and those of guests, with and without accessed bits in the guest's entries.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn idle_pages() {
    let folder = tempfile::tempdir().unwrap();
    let program = programs::build("idle_pages", "gcc", &["-static"], folder.path());
    counters(&program, "--cpus 2", "");
    for tdp_mmu in ["Y", "N"] {
        let options = format!("--cpus 1 --kvm=accessed_bits=N,tdp_mmu={tdp_mmu}");
        counters(&program, &options, "");
    }
}

/// A guest's page that was made idle is repaired in place; what `clear_refs` has reset is mapped anew.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn idle_pages_take_the_fast_path() {
    const PAGES: u64 = 16;
    const TIMES: u64 = 50;
    let folder = tempfile::tempdir().unwrap();
    let program = programs::build("idle_pages", "gcc", &["-static"], folder.path());
    let fast = |accessed_bits: &str, how: &str| {
        let options = format!("--cpus 1 --kvm=accessed_bits={accessed_bits}");
        let counters = counters(&program, &options, &format!("{how} {TIMES}"));
        let count = |name: &str| counters[name].as_u64().unwrap();
        (count("pf_taken"), count("pf_fast"))
    };
    // Once more for the page of the code, which clearing covers, too.
    let each = PAGES * (TIMES - 1);
    let (taken, repaired) = fast("N", "idle");
    assert!(
        repaired >= each && taken - repaired < 2 * PAGES,
        "{taken}, {repaired}"
    );
    let (taken, repaired) = fast("Y", "idle");
    assert!(taken < 3 * PAGES && repaired < PAGES, "{taken}, {repaired}");
    for accessed_bits in ["N", "Y"] {
        let (taken, repaired) = fast(accessed_bits, "clear");
        assert!(taken >= TIMES && repaired < PAGES, "{taken}, {repaired}");
    }
}

/// The event of the fast path shows the entry before and after; faults without an entry are left out by a condition.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn repaired_entries_are_traced() {
    let folder = tempfile::tempdir().unwrap();
    let program = programs::build("idle_pages", "gcc", &["-static"], folder.path());
    let path = folder.path().join("trace.json");
    let output = run(&[
        "trace",
        "--cpus",
        "1",
        "--kvm=accessed_bits=N",
        "--timeout",
        "300",
        "-e",
        "kvmmmu:*",
        "--filter",
        "old_spte != 0",
        "-o",
        path.to_str().unwrap(),
        "--",
        program.to_str().unwrap(),
        "idle",
        "9",
    ]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let file: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_valid(&file);
    let events = file["traceEvents"].as_array().unwrap();
    let faults = events
        .iter()
        .filter(|event| event["cat"] == "kvmmmu:fast_page_fault");
    let faults: Vec<_> = faults.map(|event| &event["args"]).collect();
    let count = |name: &str| file["faultless"]["counters"][name].as_u64().unwrap();
    assert_eq!(faults.len() as u64, count("pf_fast"), "{said}");
    assert!(faults.len() >= 16 * 8, "{said}");
    for fault in faults {
        assert_eq!(
            (&fault["vcpu"], &fault["fixed"]),
            (&0.into(), &1.into()),
            "{fault}"
        );
        assert_ne!(fault["old_spte"], fault["new_spte"], "{fault}");
        let address = fault["address"].as_str().unwrap();
        assert!(address.starts_with("0x1"), "a page of the guest: {fault}");
    }
}
