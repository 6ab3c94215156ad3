//! Linux's own tests of memory management with huge pages, in the kernel. `./x test uffd` builds them and runs this test.

mod common;

use std::process::{Command, Stdio};

use common::{programs, stderr, stdout};

/// Runs a program with huge pages always, with the verifier; returns what it said.
fn run(name: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faultless"));
    command.args(
        "run --verify --huge always --cpus 2 --memory 2G --swap 64M --timeout 300".split(' '),
    );
    command
        .arg("--")
        .arg(programs::of_linux("mm", name)?)
        .args(arguments)
        .stdin(Stdio::null());
    let output = command.output().expect("the command starts");
    Some(format!("{}{}", stdout(&output), stderr(&output)))
}

/// Runs a program with so many pages in the pool of huge pages. Returns what it said, and at the end its status.
fn run_with_pool(name: &str, pages: u32) -> Option<String> {
    let program = programs::of_linux("mm", name)?;
    let program = program.to_str().expect("a path in UTF-8");
    let mut command = Command::new(env!("CARGO_BIN_EXE_faultless"));
    command
        .args("run --verify --cpus 2 --memory 2G --swap 64M --timeout 300 --file".split(' '))
        .arg(program)
        .args(["--", "/bin/busybox", "sh", "-c"])
        .arg(format!(
            "echo {pages} > /proc/sys/vm/nr_hugepages; {program}; echo status $?"
        ))
        .stdin(Stdio::null());
    let output = command.output().expect("the command starts");
    Some(format!("{}{}", stdout(&output), stderr(&output)))
}

#[test]
#[ignore = "boots the kernel: ./x test uffd"]
fn pages_of_the_pool() {
    for (name, pages) in [
        ("map_hugetlb", 128),
        ("hugepage-mmap", 128),
        ("hugepage-mremap", 32),
        ("hugetlb_dio", 16),
        ("hugetlb_madv_vs_map", 1),
        ("hugetlb_fault_after_madv", 1),
    ] {
        let Some(said) = run_with_pool(name, pages) else {
            return;
        };
        assert!(said.contains("status 0"), "{name}: {said}");
    }
    let Some(said) = run_with_pool("cow", 16) else {
        return;
    };
    // Left out: those of the debugging file `gup_test`, and of `io_uring`.
    assert!(said.contains("# Totals: pass:74 fail:0"), "{said}");
}

/// Asserts that a program passes, and how many of its tests it ran and left out.
fn passes(name: &str, arguments: &[&str], (passed, skipped): (u32, u32)) {
    let Some(said) = run(name, arguments) else {
        return;
    };
    let totals = format!("# Totals: pass:{passed} fail:0 xfail:0 xpass:0 skip:{skipped} error:0");
    assert!(said.contains(&totals), "{name}: {said}");
}

#[test]
#[ignore = "boots the kernel: ./x test uffd"]
fn copies_on_write() {
    // Left out: those of the debugging file `gup_test`, of `io_uring`, of the pool of huge pages, and a collapse of what cannot be
    // written, which Linux refuses.
    passes("cow", &[], (67, 84));
}

#[test]
#[ignore = "boots the kernel: ./x test uffd"]
fn dirty_bits() {
    // Left out: the one of moving pages between nodes.
    passes("mkdirty", &[], (5, 1));
    passes("soft-dirty", &[], (15, 0));
}

#[test]
#[ignore = "boots the kernel: ./x test uffd"]
fn populated_and_moved_memory() {
    passes("madv_populate", &[], (21, 0));
    passes("mremap_dontunmap", &[], (5, 0));
}

#[test]
#[ignore = "boots the kernel: ./x test uffd"]
fn stress_of_huge_pages() {
    passes("transhuge-stress", &["-d", "5", "64"], (1, 0));
}

/// All tests of private anonymous memory. They take a block for each page of one, and so more than two times as much memory.
fn collapses(by: &str, count: usize) {
    let Some(said) = run("khugepaged", &[by]) else {
        return;
    };
    let tests = said.lines().filter(|line| line.starts_with("Run test: "));
    assert_eq!(tests.count(), count, "{said}");
    assert!(
        !said.contains("Fail") && said.contains("Restore THP"),
        "{said}"
    );
}

#[test]
#[ignore = "boots the kernel: ./x test uffd"]
fn collapses_on_request() {
    collapses("madvise:anon", 13);
}

#[test]
#[ignore = "boots the kernel: ./x test uffd"]
fn collapses_in_the_background() {
    collapses("khugepaged:anon", 12);
}
