//! The shape of the JSON files, which other programs rely on, as `docs/json.md` specifies it.
//!
//! On the soft machine; `boot.rs` checks the same on the kernel.

mod common;

use common::{
    PUBLISHED, assert_faults_add_up, assert_refused, assert_run_shape, faultless, run, stderr,
    stdout,
};
use serde_json::Value;

/// A short workload on the soft machine.
const SHORT: [&str; 6] = ["--machine", "soft", "--", "ebizzy", "-mTRp", "-S1"];

#[test]
fn a_run_file_has_every_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let mut arguments = vec!["run", "--json", path.to_str().unwrap()];
    arguments.extend(SHORT);
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stdout(&output).contains(" records/s"),
        "{}",
        stdout(&output)
    );

    let file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(file["schema"], 1);
    let runs = file["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1);
    assert_run_shape(&runs[0]);
    assert_faults_add_up(&runs[0]);
    assert_eq!(runs[0]["machine"], "soft");
    assert_eq!(runs[0]["policy"], "speculative");
    assert_eq!(runs[0]["exit"], 0);
    assert_eq!(runs[0]["figure"]["name"], "records/s");
    assert_eq!(
        runs[0]["program"],
        serde_json::json!(["ebizzy", "-mTRp", "-S1"])
    );
}

#[test]
fn published_counters_come_first_and_in_order() {
    let mut arguments = vec!["run", "--json", "-"];
    arguments.extend(SHORT);
    let output = run(&arguments);
    let file: Value = serde_json::from_slice(&output.stdout).unwrap();
    let counters = file["runs"][0]["counters"].as_object().unwrap();
    let names: Vec<_> = counters.keys().take(PUBLISHED.len()).collect();
    assert_eq!(names, PUBLISHED);
}

#[test]
fn json_on_stdout_moves_the_program_to_stderr() {
    let mut arguments = vec!["run", "--json", "-"];
    arguments.extend(SHORT);
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_slice::<Value>(&output.stdout).unwrap();
    assert!(stderr(&output).contains(" records/s"));
}

#[test]
fn the_demonstration_writes_three_runs() {
    let output = run(&["run", "--machine", "soft", "--json", "-"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let file: Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = file["runs"].as_array().unwrap();
    let policies: Vec<_> = runs
        .iter()
        .map(|run| run["policy"].as_str().unwrap())
        .collect();
    assert_eq!(policies, ["classic", "vma-lock", "speculative"]);
    runs.iter().for_each(assert_run_shape);
}

#[test]
fn without_qemu_the_demonstration_runs_on_the_soft_machine() {
    let mut command = faultless(&["run", "--policy", "speculative", "--json", "-"]);
    let output = command.env("FAULTLESS_NO_QEMU", "1").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("QEMU"), "{}", stderr(&output));
    let file: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(file["runs"][0]["machine"], "soft");
}

#[test]
fn an_elf_file_is_no_workload_of_the_soft_machine() {
    let path = env!("CARGO_BIN_EXE_faultless");
    assert_refused(&["run", "--machine", "soft", "--", path], "ELF");
    assert_refused(
        &["run", "--machine", "soft", "--", "no-such-workload"],
        "ebizzy",
    );
}

#[test]
fn a_run_that_is_stopped_is_still_written() {
    let arguments = [
        "run",
        "--machine",
        "soft",
        "--timeout",
        "0.5",
        "--json",
        "-",
        "--",
        "ebizzy",
        "-S60",
    ];
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(125));
    let file: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_run_shape(&file["runs"][0]);
    assert_eq!(file["runs"][0]["error"], "timed out");
}

#[test]
fn a_bench_file_has_every_key() {
    let output = run(&["bench", "--json", "-", "find_100k_ns"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let file: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(file["schema"], 1);
    assert!(file["commit"].is_string());
    for key in ["cpu", "kernel", "rustc"] {
        assert!(file["host"][key].is_string(), "{key}");
    }
    for key in ["cores", "memory"] {
        assert!(file["host"][key].is_u64(), "{key}");
    }
    let result = &file["results"][0];
    assert_eq!(result["name"], "find_100k_ns");
    assert_eq!(
        (result["unit"].as_str(), result["better"].as_str()),
        (Some("ns"), Some("lower"))
    );
    let number = |key: &str| result[key].as_f64().unwrap();
    assert!(number("low") <= number("value") && number("value") <= number("high"));
    assert!(
        result["samples"]
            .as_array()
            .unwrap()
            .iter()
            .all(Value::is_f64)
    );
}
