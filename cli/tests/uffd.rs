//! Linux's own tests of userfaultfd in the kernel. `./x test uffd` builds them and runs this test.

mod common;

use std::fs;
use std::process::{Command, Stdio};

use common::{programs, stderr, stdout};

/// Runs a program on a machine with these options, with the verifier; returns what it said.
fn run(name: &str, options: &[&str], arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faultless"));
    command.args(["run", "--verify", "--memory", "1G", "--timeout", "300"]);
    command
        .args(options)
        .arg("--")
        .arg(programs::of_linux("mm", name)?)
        .args(arguments)
        .stdin(Stdio::null());
    let output = command.output().expect("the command starts");
    let said = format!("{}{}", stdout(&output), stderr(&output));
    assert!(output.status.success(), "{name} {arguments:?}: {said}");
    Some(said)
}

/// A tree for the machine that says how large a huge page would be, as a Linux does where they are off. Without it the
/// tests that move huge pages divide by zero, on Linux, too.
fn tree() -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    let folder = tree.path().join("sys/kernel/mm/transparent_hugepage");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("hpage_pmd_size"), "2097152\n").unwrap();
    tree
}

/// Whether a test is one that needs what this kernel has not: huge pages, or the debugging file `gup_test`.
fn needs_more(test: &str) -> bool {
    test.contains(" on hugetlb")
        || test.starts_with("wp-fork-pin")
        || test.starts_with("minor-collapse")
}

#[test]
#[ignore = "boots the kernel for minutes: ./x test uffd"]
fn every_unit_test_passes_but_those_for_huge_pages() {
    let tree = tree();
    let options = ["--root", tree.path().to_str().unwrap(), "--cpus", "2"];
    let Some(said) = run("uffd-unit-tests", &options, &[]) else {
        return;
    };
    let tests = said.lines().filter_map(|line| {
        let (test, result) = line.strip_prefix("Testing ")?.split_once("... ")?;
        Some((test, result))
    });
    let (mut passed, mut skipped) = (0, 0);
    for (test, result) in tests {
        if needs_more(test) {
            assert!(result.starts_with("skipped "), "{test}: {said}");
            println!("{test}: {result}");
            skipped += 1;
        } else {
            assert_eq!(result, "done", "{test}: {said}");
            passed += 1;
        }
    }
    // Those of Linux 6.12: a line that this test does not understand is not left out silently.
    assert_eq!((passed, skipped), (35, 31), "{said}");
    let report = "Userfaults unit tests: pass=35, skip=31, fail=0 (total=66)";
    assert!(said.contains(report), "{said}");
}

/// With the arguments of Linux's own script.
fn stress(memory: &str) {
    for cpus in ["1", "2", "4"] {
        let Some(said) = run("uffd-stress", &["--cpus", cpus], &[memory, "20", "16"]) else {
            return;
        };
        assert!(said.contains("bounces: 0, mode: read,"), "{cpus}: {said}");
    }
}

#[test]
#[ignore = "boots the kernel: ./x test uffd"]
fn private_memory_survives_the_stress() {
    stress("anon");
}

#[test]
#[ignore = "boots the kernel: ./x test uffd"]
fn shared_memory_survives_the_stress() {
    stress("shmem");
}

#[test]
#[ignore = "boots the kernel: ./x test uffd"]
fn private_copies_of_shared_memory_survive_the_stress() {
    stress("shmem-private");
}
