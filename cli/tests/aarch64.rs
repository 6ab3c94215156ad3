//! The kernel on AArch64: the packaged workloads, programs with their libraries and their input, and a machine that
//! is stopped. `./x test aarch64` builds what this needs and runs these tests.

mod common;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use common::workloads::{boot, boot_all};
use common::{faultless, programs, run, stderr, stdout};
use serde_json::Value;

const ARCH: &str = "aarch64";
const COMPILER: &str = "aarch64-linux-gnu-gcc";

/// How programs are linked.
const LINKED: [&[&str]; 4] = [
    &["-static", "-no-pie"],
    &["-static-pie"],
    &["-no-pie"],
    &["-pie", "-fPIE"],
];

/// Runs a program, the architecture of which is recognised, with this input.
fn feed(program: &Path, input: &[u8]) -> Output {
    let mut command = faultless(&["run", "--verify", "--timeout", "60", "--"]);
    command.arg(program).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn build(name: &str, how: &[&str], folder: &Path) -> PathBuf {
    programs::build(name, COMPILER, how, folder)
}

#[test]
#[ignore = "boots the kernel: ./x test aarch64"]
fn one_cpu() {
    boot_all(ARCH, "1");
}

/// Two, and with `--full` also four.
#[test]
#[ignore = "boots the kernel: ./x test aarch64"]
fn several_cpus() {
    boot_all(ARCH, "2");
    if faultless_tests::full() {
        boot_all(ARCH, "4");
    }
}

#[test]
#[ignore = "boots the kernel: ./x test aarch64"]
fn a_program_of_each_kind_reads_its_input() {
    let folder = tempfile::tempdir().unwrap();
    for how in LINKED {
        let program = build("greets", how, folder.path());
        let ended = feed(&program, b"Ada\nGrace\n");
        assert_eq!(ended.status.code(), Some(0), "{how:?}: {}", stderr(&ended));
        assert_eq!(stdout(&ended), "hello Ada\nhello Grace\n", "{how:?}");
    }
}

#[test]
#[ignore = "boots the kernel: ./x test aarch64"]
fn a_machine_that_is_stopped_reports() {
    let arguments = ["run", "--arch", ARCH, "--timeout", "4", "--json", "-"];
    let output = run(&[&arguments[..], &["--", "ebizzy", "-mTRp", "-S", "600"]].concat());
    assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
    let file: Value = serde_json::from_slice(&output.stdout).unwrap();
    let run = &file["runs"][0];
    assert_eq!(run["error"], "timed out");
    assert!(run["counters"]["faults"].as_u64().unwrap() > 0, "{run}");
}

/// With one CPU and a clock that counts instructions, a run repeats exactly.
#[test]
#[ignore = "boots the kernel: ./x test aarch64"]
fn instructions_are_counted() {
    let count = || {
        let line = ["run", "--arch", ARCH, "--icount", "--json", "-", "--"];
        let output = run(&[&line[..], &["page_fault1", "-s", "1", "-m", "50"]].concat());
        let file: Value = serde_json::from_slice(&output.stdout).unwrap();
        file["runs"][0]["figure"]["value"].as_f64().unwrap()
    };
    let first = count();
    assert!(first > 0.0);
    assert_eq!(first, count());
}

#[test]
#[ignore = "boots the kernel: ./x test aarch64"]
fn swap_on_a_disk() {
    let line = [
        "run",
        "--arch",
        ARCH,
        "--swap",
        "64M:disk",
        "--timeout",
        "60",
        "--",
    ];
    let output = run(&[&line[..], &["forceswap", "2", "10", "32"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("paged: 320 of 320"));
}

#[test]
#[ignore = "boots the kernel: ./x test aarch64"]
fn ebizzy_faults_speculatively() {
    let run = boot(ARCH, "2", "speculative", &["ebizzy", "-mTRp", "-S", "2"]);
    let counter = |name: &str| run["counters"][name].as_f64().unwrap();
    assert!(counter("spf") >= 0.99 * counter("faults"), "{run}");
}
