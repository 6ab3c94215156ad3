//! `stat` and `trace`, on the soft machine; `boot_trace.rs` runs the same on the kernel.

mod common;

use common::{assert_faults_add_up, assert_refused, assert_run_shape, run, stderr, stdout};
use serde_json::Value;

const SOFT: [&str; 6] = ["--machine", "soft", "--cpus", "2", "--", "first_write"];
/// Faults of all kinds, on one CPU.
const SMALL: [&str; 7] = ["--machine", "soft", "--cpus", "1", "--", "guard", "-r1"];

/// Traces with these options. Returns the parsed file, and stderr.
fn trace(options: &[&str], program: &[&str]) -> (Value, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let mut arguments = vec!["trace", "-o", path.to_str().unwrap()];
    arguments.extend(options);
    arguments.extend(program);
    let output = run(&arguments);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
    let text = std::fs::read_to_string(&path).unwrap();
    (serde_json::from_str(&text).expect("the file is JSON"), said)
}

fn events<'f>(file: &'f Value, category: &str) -> Vec<&'f Value> {
    let all = file["traceEvents"].as_array().unwrap().iter();
    all.filter(|event| event["cat"] == category).collect()
}

#[test]
fn stat_shows_counters_and_latencies() {
    let mut arguments = vec!["stat"];
    arguments.extend(SOFT);
    let output = run(&arguments);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for part in [
        "faults",
        "spf",
        "pagefault:spf_pte_lock",
        "per second",
        "p99",
        "mm:mmap",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!stdout(&output).contains("p99"));
}

#[test]
fn stat_shows_what_is_chosen_for_each_policy() {
    let mut arguments = vec!["stat", "-e", "spf,mm:munmap", "--policy", "all", "--json"];
    arguments.extend(SOFT);
    let output = run(&arguments);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("spf") && said.contains("mm:munmap"), "{said}");
    assert!(
        !said.contains("pagefault:") && !said.contains("mm:mmap"),
        "{said}"
    );
    let file: Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = file["runs"].as_array().unwrap();
    let policies: Vec<_> = runs
        .iter()
        .map(|run| run["policy"].as_str().unwrap())
        .collect();
    assert_eq!(policies, ["classic", "vma-lock", "speculative"]);
    for run in runs {
        assert_run_shape(run);
        let faults = &run["latencies"]["faults"];
        assert_eq!(faults["count"], run["counters"]["faults"], "{run}");
        let times = ["p50", "p90", "p99", "max"].map(|key| faults[key].as_u64().unwrap());
        assert!(times.is_sorted(), "{faults}");
        let ranges = faults["histogram"].as_array().unwrap();
        let counts = ranges.iter().map(|range| range[2].as_u64().unwrap());
        assert_eq!(counts.sum::<u64>(), faults["count"].as_u64().unwrap());
        assert!(run["latencies"]["mm:munmap"]["p50"].is_u64(), "{run}");
    }
    assert_faults_add_up(&runs[2]);
}

#[test]
fn a_run_that_measures_nothing_says_so() {
    let mut arguments = vec!["run", "--json", "-"];
    arguments.extend(SOFT);
    let file: Value = serde_json::from_slice(&run(&arguments).stdout).unwrap();
    assert!(
        file["runs"][0].get("latencies").is_some_and(Value::is_null),
        "{file}"
    );
}

#[test]
fn every_fault_is_an_event_with_its_fields() {
    let (file, said) = trace(&[], &SMALL);
    assert!(said.contains("none lost"), "{said}");
    assert_eq!(file["faultless"]["lost"], 0);
    let faults = events(&file, "faults");
    let counters = &file["faultless"]["counters"];
    assert!(faults.len() > 100);
    assert_eq!(counters["faults"], faults.len());
    let refused = events(&file, "pagefault:spf_vma_access").len();
    assert!(refused > 0);
    assert_eq!(counters["pagefault:spf_vma_access"], refused);
    for name in [
        "mm:mmap",
        "mm:munmap",
        "mm:mprotect",
        "mm:madvise",
        "mm:brk",
        "tlb:flush",
    ] {
        assert!(!events(&file, name).is_empty(), "{name}");
    }
    for fault in &faults {
        assert_eq!(fault["ph"], "X", "{fault}");
        assert!(fault["dur"].as_f64().unwrap() >= 0.0, "{fault}");
        let address = fault["args"]["address"].as_str().unwrap();
        assert!(address.starts_with("0x"), "{fault}");
        assert!(fault["args"]["kind"].is_string() && fault["args"]["reason"].is_string());
        assert_eq!(fault["args"]["cpu"], 0);
    }
    let segv = faults
        .iter()
        .filter(|fault| fault["args"]["kind"] == "segv");
    assert_eq!(
        segv.count(),
        events(&file, "pagefault:spf_vma_access").len()
    );
    let unmapped = events(&file, "mm:munmap");
    assert!(
        unmapped.iter().any(|event| event["args"]["error"] == 22),
        "guard tries bad ones"
    );
}

#[test]
fn counts_agree_with_the_counters_of_the_same_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let path = path.to_str().unwrap();
    let mut arguments = vec!["trace", "-o", path];
    arguments.extend(SOFT);
    assert_eq!(run(&arguments).status.code(), Some(0));
    let summary = run(&["trace", "summary", "--json", path]);
    let summary: Value = serde_json::from_slice(&summary.stdout).unwrap();
    assert_eq!(
        (&summary["lost"], &summary["complete"]),
        (&Value::from(0), &Value::from(true))
    );
    // The summary computes latencies from the same events.
    let count = |name: &str| summary["events"][name]["count"].as_u64().unwrap();
    assert_eq!(
        count("faults"),
        summary["latencies"]["faults"]["count"].as_u64().unwrap()
    );
    let kinds = summary["latencies"].as_object().unwrap().iter();
    let kinds = kinds.filter(|(name, _)| name.starts_with("faults:"));
    let sum: u64 = kinds
        .map(|(_, latency)| latency["count"].as_u64().unwrap())
        .sum();
    assert_eq!(sum, count("faults"));
    let slowest = summary["slowest"].as_array().unwrap();
    assert!(
        slowest.len() == 10 && slowest[0]["address"].is_string(),
        "{summary}"
    );
    assert_eq!(
        slowest[0]["duration"],
        summary["latencies"]["faults"]["max"]
    );

    let text = stdout(&run(&["trace", "summary", "--slowest", "3", path]));
    for part in ["slowest faults", "first_touch", "lost events: 0", "█"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn only_chosen_events_are_in_the_file() {
    let (file, _) = trace(&["-e", "mm:m*map"], &SOFT);
    let all = file["traceEvents"].as_array().unwrap();
    let shown: Vec<_> = all.iter().filter(|event| event["ph"] != "M").collect();
    assert!(!shown.is_empty());
    for event in shown {
        let name = event["cat"].as_str().unwrap();
        assert!(
            ["mm:mmap", "mm:munmap", "mm:mremap"].contains(&name),
            "{event}"
        );
    }
}

#[test]
fn a_filter_leaves_out_the_rest() {
    let filter = "kind == first_touch && address >= 0x1000 && cpu == 1";
    let (file, _) = trace(&["--filter", filter], &SOFT);
    let all = file["traceEvents"].as_array().unwrap();
    let shown: Vec<_> = all.iter().filter(|event| event["ph"] != "M").collect();
    assert!(!shown.is_empty());
    for event in shown {
        assert_eq!(event["cat"], "faults", "{event}");
        assert_eq!(
            (&event["args"]["kind"], &event["args"]["cpu"]),
            (&"first_touch".into(), &1.into())
        );
    }
    let (file, _) = trace(&["--filter", "duration > 1000s"], &SOFT);
    assert_eq!(file["faultless"]["events"], 0);
}

#[test]
fn every_track_has_a_name() {
    for program in ["first_write", "guard"] {
        let (file, _) = trace(
            &[],
            &["--machine", "soft", "--cpus", "2", "--", program, "-r1"],
        );
        let all = file["traceEvents"].as_array().unwrap();
        let mut named = std::collections::HashSet::new();
        for event in all {
            let track = (event["pid"].as_u64().unwrap(), event.get("tid").cloned());
            match event["ph"].as_str().unwrap() {
                "M" => drop(named.insert(track)),
                "X" | "i" | "s" | "f" => assert!(named.contains(&track), "{event}"),
                other => panic!("{other}"),
            }
            assert!(event["ph"] == "M" || event["ts"].as_f64().unwrap() >= 0.0);
        }
        // CPUs show which threads ran on them.
        assert!(!events(&file, "sched:switch").is_empty());
    }
}

#[test]
fn a_program_that_fails_leaves_a_whole_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let path = path.to_str().unwrap();
    let mut arguments = vec!["trace", "--timeout", "0.3", "-o", path, "--machine", "soft"];
    arguments.extend(["--", "ebizzy", "-mTRp", "-S", "60"]);
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
    let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert!(file["faultless"]["events"].as_u64().unwrap() > 0);
    assert!(!events(&file, "faults").is_empty());
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let list = "(there are: faults, spf,";
    assert_refused(&["stat", "-e", "nonsense", "--", "guard"], list);
    assert_refused(&["stat", "-e", "", "--", "guard"], list);
    assert_refused(&["stat", "-x", "--", "guard"], "unexpected argument");
    assert_refused(&["stat"], "no program");
    assert_refused(&["stat", "--policy", "fast", "--", "guard"], "all");
    assert_refused(
        &["trace", "-o", "x", "-e", "spf", "--", "guard"],
        "(there are: faults,",
    );
    assert_refused(
        &["trace", "-o", "x", "--filter", "foo > 1", "--", "guard"],
        "(there are: event,",
    );
    assert_refused(
        &["trace", "-o", "x", "--filter", "cpu >", "--", "guard"],
        "with nothing",
    );
    assert_refused(&["trace", "--", "guard"], "-o FILE");
    assert_refused(
        &["trace", "-o", "/no/such/folder/x", "--", "guard"],
        "cannot write",
    );
    assert_refused(&["trace", "-o", "x"], "no program");
    assert_refused(&["trace", "summary", "/no/such/file"], "there is no file");
    assert_refused(&["trace", "summary", "/etc/passwd"], "no file of ./x trace");
    assert!(!std::path::Path::new("x").exists());
}

#[test]
fn lists_need_no_program() {
    let counters = stdout(&run(&["stat", "--list"]));
    assert!(counters.lines().any(|line| line == "spf") && counters.contains("faults:copy"));
    let events = stdout(&run(&["trace", "--list"]));
    assert!(events.contains("pagefault:spf_pte_lock") && events.contains("every event:"));
}
