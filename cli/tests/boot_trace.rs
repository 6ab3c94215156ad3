//! `stat` and `trace` on the kernel, booted in QEMU.
//!
//! `./x test boot` builds the kernel and the workloads and runs these tests.

mod common;

use common::trace_format::assert_valid;
use common::{run, stderr};
use serde_json::Value;

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn stat_measures_every_fault() {
    let output = run(&[
        "stat",
        "--timeout",
        "300",
        "--json",
        "--",
        "guard",
        "-r",
        "20",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let file: Value = serde_json::from_slice(&output.stdout).unwrap();
    let run = &file["runs"][0];
    assert_eq!(
        run["latencies"]["faults"]["count"], run["counters"]["faults"],
        "{run}"
    );
    for name in [
        "mm:mmap",
        "mm:munmap",
        "mm:mprotect",
        "mm:madvise",
        "mm:brk",
        "tlb:flush",
    ] {
        assert!(
            run["latencies"][name]["count"].as_u64().unwrap() > 0,
            "{name}: {run}"
        );
    }
    for name in ["context_switches", "syscalls"] {
        assert!(run["counters"][name].as_u64().unwrap() > 0, "{name}: {run}");
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_trace_has_every_fault_and_the_threads_they_belong_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    // A machine with memory on both sides of the hole below 4 GiB.
    for (cpus, memory) in [("1", "256M"), ("2", "1G"), ("2", "3G")] {
        let output = run(&[
            "trace",
            "--cpus",
            cpus,
            "--memory",
            memory,
            "--timeout",
            "300",
            "-o",
            path.to_str().unwrap(),
            "--",
            "guard",
            "-r",
            "20",
        ]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        let file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_valid(&file);
        let events = file["traceEvents"].as_array().unwrap();
        let of = |name: &str| {
            events
                .iter()
                .filter(|event| event["cat"] == name)
                .collect::<Vec<_>>()
        };
        let (faults, end) = (of("faults"), &file["faultless"]);
        if end["lost"] == 0 {
            assert_eq!(end["counters"]["faults"], faults.len(), "{said}");
            // Each has a thread of the program: no CPU faults without one.
            assert!(faults.iter().all(|fault| fault["pid"] != 1), "{said}");
        } else {
            // A busy host may not drain a ring in time.
            assert!(said.contains("lost, because"), "{said}");
        }
        let named = events
            .iter()
            .any(|event| event["name"] == "thread_name" && event["args"]["name"] == "guard");
        assert!(named, "{said}");
        assert!(!of("sched:switch").is_empty());
        if cpus == "2" {
            assert!(!of("tlb:shootdown_sent").is_empty());
        }
        // Arrows have both ends.
        let shootdowns = of("tlb:shootdown");
        let arrows = |phase: &str| {
            let ends = shootdowns.iter().filter(|end| end["ph"] == phase);
            ends.map(|end| end["id"].as_u64().unwrap())
                .collect::<Vec<_>>()
        };
        if end["lost"] == 0 {
            assert_eq!(arrows("s"), arrows("f"));
            assert_eq!(arrows("s").is_empty(), cpus == "1");
        }
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_trace_that_is_stopped_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let path = path.to_str().unwrap();
    let output = run(&[
        "trace",
        "--timeout",
        "5",
        "-e",
        "faults",
        "-o",
        path,
        "--",
        "ebizzy",
        "-mTRp",
        "-S",
        "600",
    ]);
    assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
    let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_valid(&file);
    let counted = file["faultless"]["counters"]["faults"].as_u64().unwrap();
    let written = file["faultless"]["events"].as_u64().unwrap();
    let lost = file["faultless"]["lost"].as_u64().unwrap();
    assert!(written > 0, "{counted}");
    // The kernel may have been stopped between counting a fault and recording it, on each CPU at most once; lost
    // events may be switches.
    assert!(
        written <= counted && written + lost + 2 >= counted,
        "{counted} {written} {lost}"
    );
}

/// Processes that fork and execute, threads that come and go, more CPUs than the host may have.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn traces_of_processes_and_threads_follow_the_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let short = ["-t", "4", "-s", "1", "-m", "50"];
    for program in ["exec1", "thread_storm"] {
        let mut arguments = vec!["trace", "--cpus", "4", "--timeout", "300", "-o"];
        arguments.extend([path.to_str().unwrap(), "--", program]);
        arguments.extend(short);
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_valid(&file);
        let events = file["traceEvents"].as_array().unwrap();
        for name in [
            "faults",
            "mm:munmap",
            "sched:switch",
            "tlb:shootdown_received",
        ] {
            let is_there = events.iter().any(|event| event["cat"] == name);
            assert!(is_there, "{program}: no {name}");
        }
    }
}
