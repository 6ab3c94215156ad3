//! Programs in our kernel and in Debian's Linux.
//!
//! `./x test compare` fetches the kernels, builds ours and the workloads, and runs these tests.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{faultless, run, stderr};
use serde_json::Value;

/// A program of three lines, built for both sides.
fn program(folder: &Path, body: &str) -> PathBuf {
    let source = folder.join("program.c");
    let text = format!("#include <stdio.h>\n#include <unistd.h>\nint main(void) {{ {body} }}\n");
    fs::write(&source, text).unwrap();
    let program = folder.join("program");
    let mut compiler = Command::new("musl-gcc");
    compiler
        .args(["-static", "-O1", "-o"])
        .args([&program, &source]);
    assert!(compiler.status().expect("musl-gcc runs").success());
    program
}

fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../.faultless/linux")
}

fn assert_shape(result: &Value) {
    for key in ["name", "peer", "version"] {
        assert!(result[key].is_string(), "{key}: {result}");
    }
    for key in ["program", "ours", "theirs"] {
        assert!(result[key].is_array(), "{key}: {result}");
    }
    for key in ["ratio", "low", "high", "metric", "release", "error"] {
        assert!(result.get(key).is_some(), "{key}: {result}");
    }
    for side in ["our_counts", "their_counts"] {
        for count in [
            "faults",
            "flushes_received",
            "flushes_per_op",
            "context_switches",
        ] {
            assert!(
                result[side].get(count).is_some(),
                "{side} {count}: {result}"
            );
        }
    }
    assert!(result["cpus"].is_u64(), "{result}");
    assert!(result.get("swap").is_some(), "{result}");
}

fn results(json: &[u8]) -> Vec<Value> {
    let file: Value = serde_json::from_slice(json).expect("the file is JSON");
    assert_eq!(file["schema"], 1);
    assert!(file["machine"].is_array() && file["settings"].is_object() && file["host"].is_object());
    file["results"]
        .as_array()
        .expect("results is a list")
        .clone()
}

#[test]
#[ignore = "boots Linux: ./x test compare"]
fn instructions_repeat_exactly() {
    let once = || {
        let arguments = [
            "compare",
            "--json",
            "-",
            "--",
            "page_fault1",
            "-s",
            "1",
            "-b",
            "1M",
        ];
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        results(&output.stdout)
    };
    let first = once();
    assert_eq!(first.len(), 2);
    for (result, peer) in first.iter().zip(["linux-6.1", "linux-6.12"]) {
        assert_shape(result);
        assert_eq!(result["peer"], peer);
        assert_eq!(result["metric"], "instructions_per_op");
        assert!(
            result["error"].is_null() && result["ratio"].as_f64().unwrap() > 0.0,
            "{result}"
        );
        let release = result["release"].as_str().unwrap();
        let series = peer.trim_start_matches("linux-");
        assert!(release.starts_with(&format!("{series}.")), "{release}");
        // All faults of a second's work, and none of the processes around it.
        assert!(
            result["their_counts"]["faults"].as_u64().unwrap() > 1000,
            "{result}"
        );
    }
    for (one, other) in first.iter().zip(once()) {
        assert_eq!(
            (&one["ours"], &one["theirs"]),
            (&other["ours"], &other["theirs"])
        );
    }
}

/// Programs with an interpreter and libraries, of glibc and musl, that get a file and a variable.
#[test]
#[ignore = "boots Linux: ./x test compare"]
fn programs_bring_their_libraries_to_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let text = "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
                int main(void) { puts(\"hello\"); \
                return getenv(\"GIVEN\") == NULL || access(\"/given/file\", R_OK) != 0; }\n";
    let source = folder.path().join("hello.c");
    fs::write(&source, text).unwrap();
    let given = format!("{}:/given/file", source.display());
    for compiler in ["gcc", "musl-gcc"] {
        let program = folder.path().join(compiler);
        let mut command = Command::new(compiler);
        command.arg("-o").args([&program, &source]);
        assert!(command.status().unwrap().success(), "{compiler}");
        let mut command = faultless(&["compare", "--linux", "6.12", "--json", "-"]);
        command.args(["--file", &given, "--env", "GIVEN=yes", "--"]);
        let output = command.arg(&program).output().unwrap();
        let results = results(&output.stdout);
        let said = stderr(&output);
        assert!(
            results[0]["release"].as_str().unwrap().starts_with("6.12."),
            "{said}"
        );
        assert!(results[0]["error"].is_null(), "{} {said}", results[0]);
    }
}

/// Every page goes out and comes back, and costs about what is known of Linux, and less in our kernel.
#[test]
#[ignore = "boots Linux: ./x test compare"]
fn linux_has_swap() {
    for (swap, low, high) in [("64M", 26_000.0, 30_000.0), ("64M:ram", 17_000.0, 21_000.0)] {
        let line = format!("compare --linux 6.12 --swap {swap} --json - -- forceswap 1 1000 1");
        let output = run(&line.split(' ').collect::<Vec<_>>());
        let said = stderr(&output);
        let results = results(&output.stdout);
        assert!(results[0]["ratio"].as_f64().unwrap() > 1.5, "{said}");
        assert_shape(&results[0]);
        let cost = results[0]["theirs"][0].as_f64().unwrap();
        assert!((low..high).contains(&cost), "{swap}: {cost}");
    }
}

#[test]
#[ignore = "boots Linux: ./x test compare"]
fn two_cpus_give_pairs_of_times() {
    let line = "compare --linux 6.12 --cpus 2 --repeat 2 --json - -- page_fault1 -t 2 -s 1 -b 1M";
    let output = run(&line.split(' ').collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let results = results(&output.stdout);
    let result = &results[0];
    assert_shape(result);
    assert_eq!(result["metric"], "nanoseconds_per_op");
    for side in ["ours", "theirs"] {
        assert_eq!(result[side].as_array().unwrap().len(), 2, "{result}");
    }
    let [low, ratio, high] = ["low", "ratio", "high"].map(|key| result[key].as_f64().unwrap());
    assert!(low <= ratio && ratio <= high, "{result}");
}

#[test]
#[ignore = "boots Linux: ./x test compare"]
fn a_program_that_fails_on_one_side_is_said_to() {
    let folder = tempfile::tempdir().unwrap();
    // A file that only Linux has.
    let body = "if (access(\"/proc/kallsyms\", F_OK) != 0) return 0; \
                fputs(\"it is Linux\\n\", stderr); return 3;";
    let program = program(folder.path(), body);
    let arguments = [
        "compare",
        "--linux",
        "6.1",
        "--json",
        "-",
        "--",
        program.to_str().unwrap(),
    ];
    let output = run(&arguments);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("in faultless it ends well"), "{said}");
    assert!(
        said.contains("in linux-6.1 it exits with 3 (it is Linux)"),
        "{said}"
    );
    let results = results(&output.stdout);
    assert_shape(&results[0]);
    assert!(results[0]["ratio"].is_null() && results[0]["error"].is_string());
}

#[test]
#[ignore = "boots Linux: ./x test compare"]
fn a_program_without_a_figure_is_compared_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), "puts(\"hello\"); return 0;");
    let arguments = ["compare", "--linux", "6.1", "--output", "--json", "-", "--"];
    let output = run(&[&arguments[..], &[program.to_str().unwrap()]].concat());
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(said.matches("hello\n").count(), 2, "{said}");
    let results = results(&output.stdout);
    assert_eq!(results[0]["metric"], "instructions_per_run");
    assert!(results[0]["ratio"].as_f64().unwrap() > 0.0);
}

#[test]
#[ignore = "boots Linux: ./x test compare"]
fn a_kernel_that_is_missing_does_not_stop_the_others() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["init", "6.1"] {
        symlink(kernels().join(name), folder.path().join(name)).unwrap();
    }
    let arguments = [
        "compare",
        "--json",
        "-",
        "--",
        "page_fault1",
        "-s",
        "1",
        "-b",
        "1M",
    ];
    let output = faultless(&arguments)
        .env("FAULTLESS_LINUX", folder.path())
        .output()
        .unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("linux-6.12 is left out"), "{said}");
    let results = results(&output.stdout);
    assert_eq!(results.len(), 1);
    assert!(results[0]["error"].is_null() && results[0]["peer"] == "linux-6.1");
}

#[test]
#[ignore = "boots Linux: ./x test compare"]
fn an_interrupt_leaves_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("compare.json");
    let names = [
        "compare",
        "--linux",
        "6.1",
        "--suite",
        "--only",
        "mmap1,page_fault1_threads",
    ];
    let mut child = faultless(&[&names[..], &["--json", path.to_str().unwrap()]].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The first result is written before the second workload is done.
    let begun = Instant::now();
    while !fs::metadata(&path).is_ok_and(|file| file.len() > 0) {
        assert!(
            begun.elapsed() < Duration::from_secs(600),
            "no result comes"
        );
        assert!(child.try_wait().unwrap().is_none(), "it ended at once");
        thread::sleep(Duration::from_millis(20));
    }
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let results = results(&fs::read(&path).unwrap());
    assert_eq!(results.len(), 1, "{results:?}");
    assert_shape(&results[0]);
}
