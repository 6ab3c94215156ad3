//! Runs the command as a user does.

// Each test file uses only a part of it.
#![allow(dead_code)]

pub mod programs;
pub mod stress_ng;
pub mod trace_format;
pub mod workloads;

use std::process::{Command, Output};

use serde_json::Value;

/// The counters that users know by name, whatever else is counted.
pub const PUBLISHED: [&str; 8] = [
    "faults",
    "spf",
    "pagefault:spf_pte_lock",
    "pagefault:spf_vma_changed",
    "pagefault:spf_vma_noanon",
    "pagefault:spf_vma_notsup",
    "pagefault:spf_vma_access",
    "pagefault:spf_pmd_changed",
];

/// The command with arguments.
pub fn faultless(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faultless"));
    command.args(arguments);
    command
}

/// Runs it to its end.
pub fn run(arguments: &[&str]) -> Output {
    faultless(arguments).output().expect("the command starts")
}

/// Its stdout.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Its stderr.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Checks that it refused `arguments` in one line that contains `part`, and printed nothing else.
pub fn assert_refused(arguments: &[&str], part: &str) {
    let output = run(arguments);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(125), "{arguments:?}: {said}");
    assert_eq!(stdout(&output), "", "{arguments:?}");
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    assert!(said.starts_with("faultless: "), "{arguments:?}: {said}");
    assert!(said.contains(part), "{arguments:?}: {said}");
}

/// Checks one run of a run file: every key is there, and has its type.
pub fn assert_run_shape(run: &Value) {
    for key in ["machine", "policy", "accel", "commit"] {
        assert!(run[key].is_string(), "{key}: {run}");
    }
    for key in ["cpus", "memory"] {
        assert!(run[key].is_u64(), "{key}: {run}");
    }
    for key in ["exit", "signal"] {
        assert!(
            run.get(key)
                .is_some_and(|value| value.is_null() || value.is_u64()),
            "{key}: {run}"
        );
    }
    assert!(
        run.get("error")
            .is_some_and(|value| value.is_null() || value.is_string()),
        "{run}"
    );
    assert!(run["seconds"].is_f64(), "{run}");
    let words = run["program"].as_array().expect("program is a list");
    assert!(
        !words.is_empty() && words.iter().all(Value::is_string),
        "{run}"
    );
    let figure = run.get("figure").expect("figure is there");
    assert!(
        figure.is_null() || figure["name"].is_string() && figure["value"].is_f64(),
        "{run}"
    );
    let counters = run["counters"].as_object().expect("counters is an object");
    assert!(counters.values().all(Value::is_u64), "{run}");
    for name in PUBLISHED.iter().chain(&["nr_tlb_remote_flush"]) {
        assert!(counters.contains_key(*name), "{name}: {run}");
    }
}

/// `faults` is `spf` and the fallback reasons, for a speculative run.
pub fn assert_faults_add_up(run: &Value) {
    let counter = |name: &str| run["counters"][name].as_u64().expect("a number");
    let sum: u64 = PUBLISHED[1..].iter().map(|name| counter(name)).sum();
    // Answered without a lock: an event, and no fallback.
    let events = counter("pagefault:spf_vma_access");
    assert_eq!(counter("faults"), sum - events, "{run}");
}
