//! Checks that traces open in Perfetto, by `common/trace_format.rs`, which is itself checked first.
//! `boot_trace.rs` checks traces of the kernel in the same way.

mod common;

use common::trace_format::{assert_valid, faults_of};
use common::{run, stderr};
use serde_json::{Value, json};

/// A file with these events on one named track.
fn file(events: &[Value]) -> Value {
    let mut all = vec![
        json!({"name": "process_name", "ph": "M", "pid": 5, "args": {"name": "p"}}),
        json!({"name": "thread_name", "ph": "M", "pid": 5, "tid": 6, "args": {"name": "t"}}),
    ];
    all.extend(events.iter().cloned());
    json!({"displayTimeUnit": "ns", "traceEvents": all})
}

fn slice(start: f64, length: f64) -> Value {
    json!({"name": "s", "cat": "c", "ph": "X", "pid": 5, "tid": 6, "ts": start, "dur": length})
}

fn arrow(phase: &str, at: f64) -> Value {
    json!({"name": "a", "cat": "c", "ph": phase, "id": 1, "bp": "e", "pid": 5, "tid": 6, "ts": at})
}

#[test]
fn what_follows_the_format_passes() {
    let instant =
        json!({"name": "i", "cat": "c", "ph": "i", "s": "t", "pid": 5, "tid": 6, "ts": 3.5});
    assert_valid(&file(&[
        // The inner slice first, in the order in which they end.
        slice(1.0, 0.5),
        slice(1.0, 9.0),
        slice(3.5, 0.001),
        instant.clone(),
        instant,
        arrow("s", 3.5),
        arrow("f", 9.999),
        slice(10.0, 0.0),
        slice(10.0, 4.0),
    ]));
}

#[test]
fn what_does_not_is_found() {
    let without = |key: &str| {
        let mut event = slice(1.0, 1.0);
        event.as_object_mut().unwrap().remove(key);
        event
    };
    let elsewhere =
        json!({"name": "s", "cat": "c", "ph": "X", "pid": 5, "tid": 7, "ts": 1, "dur": 1});
    let (begin, end) = (arrow("s", 2.0), arrow("f", 3.0));
    for (events, part) in [
        (&[slice(1.0, 2.0), slice(2.0, 2.0)][..], "overlap"),
        (&[slice(2.0, 2.0), slice(1.0, 2.0)], "overlap"),
        (
            &[slice(1.0, 9.0), slice(2.0, 3.0), slice(4.0, 2.0)],
            "overlap",
        ),
        (&[slice(1.0, -1.0)], "no dur"),
        (&[slice(-1.0, 1.0)], "no ts"),
        (&[slice(1.0005, 1.0)], "no ts"),
        (&[without("dur")], "no dur"),
        (&[without("ts")], "no ts"),
        (&[without("ph")], "no ph"),
        (&[without("name")], "no name"),
        (&[without("tid")], "no tid"),
        (&[elsewhere], "has no name"),
        (&[slice(1.0, 9.0), begin.clone()], "one end on each side"),
        (
            &[slice(1.0, 9.0), begin.clone(), begin.clone(), end.clone()],
            "one end on each side",
        ),
        (&[slice(1.0, 9.0), arrow("s", 4.0), end.clone()], "back to"),
        (
            &[slice(1.0, 1.5), begin.clone(), end.clone()],
            "stands on nothing",
        ),
        (&[slice(1.0, 2.0), begin, end], "stands on nothing"),
        (
            &[json!({"name": "s", "ph": "B", "cat": "c", "pid": 5, "tid": 6, "ts": 1})],
            "unknown ph",
        ),
    ] {
        let found = faults_of(&file(events)).join("\n");
        assert!(found.contains(part), "{part}: {found:?} in {events:?}");
    }
    assert_eq!(faults_of(&json!({})).len(), 1);
}

#[test]
fn traces_of_the_soft_machine_pass() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    for program in [
        &["guard", "-r5"][..],
        &["first_write", "-n50", "-d1"],
        &["ebizzy", "-mTRp", "-t4", "-S1"],
    ] {
        let mut arguments = vec!["trace", "--machine", "soft", "--cpus", "4", "-o"];
        // The beginning, which is enough.
        arguments.extend([path.to_str().unwrap(), "--filter", "start < 300ms", "--"]);
        arguments.extend(program);
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let events = file["traceEvents"].as_array().unwrap();
        assert!(events.len() > 100, "{program:?}: {}", events.len());
        assert_valid(&file);
    }
}
