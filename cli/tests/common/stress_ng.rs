//! Debian's `stress-ng` in the kernel, on two CPUs; it checks what it reads.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use faultless_tests::arch::Arch;
use faultless_tests::budget::Budget;
use faultless_tests::programs::root;

use super::{stderr, stdout};

/// The stressors of memory.
pub const STRESSORS: [&str; 17] = [
    "mmap",
    "mmapfork",
    "mmapfixed",
    "mmapaddr",
    "mmapmany",
    "mremap",
    "madvise",
    "mprotect",
    "brk",
    "stack",
    "vm",
    "vm-segv",
    "vm-addr",
    "fork",
    "tmpfs",
    "memfd",
    "malloc",
];

/// Its folder for AArch64.
fn foreign() -> PathBuf {
    root().join(".faultless/debian-aarch64/stress-ng")
}

/// Whether it is installed; if not, prints a line about what is left out.
pub fn is_there() -> bool {
    let found = match Arch::of_machines() {
        Arch::X86_64 => Command::new("stress-ng").arg("--version").output().is_ok(),
        Arch::AArch64 => foreign().is_dir(),
    };
    if !found {
        println!("skipped: this machine has no stress-ng, which ./x test would install");
    }
    found
}

/// Runs two instances of a stressor for `seconds`. The error is their output, if anything is wrong.
pub fn run(stressor: &str, seconds: u64) -> Result<(), String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faultless"));
    command.args(["run", "--verify", "--list-unknown", "--cpus", "2"]);
    command.args(["--memory", "2G", "--timeout", "400"]);
    match Arch::of_machines() {
        Arch::X86_64 => command.args(["--", "stress-ng"]),
        Arch::AArch64 => command
            .arg("--root")
            .arg(foreign())
            .args(["--", "/usr/bin/stress-ng"]),
    };
    command.args(["--verify", "--metrics-brief", "-t", &seconds.to_string()]);
    command
        .args([&format!("--{stressor}"), "2"])
        .stdin(Stdio::null());
    command.env_remove("LD_LIBRARY_PATH");
    let output = command.output().expect("the command starts");
    let said = format!("{}{}", stdout(&output), stderr(&output));
    // Its exit status may be 0 after a failure or a stressor left out.
    let bad = [
        "fail:",
        "skip",
        "unsuccessful",
        "panic",
        "verification failed",
    ];
    let is_bad = bad.iter().any(|word| said.contains(word));
    let is_good = said.contains("successful run completed");
    if output.status.success() && is_good && !is_bad {
        Ok(())
    } else {
        Err(format!("{stressor} fails:\n{said}"))
    }
}

/// Runs all of these stressors, and fails with the output of every one that fails.
pub fn run_all(stressors: &[&str], seconds: u64) {
    let mut wrong = Vec::new();
    for stressor in stressors {
        // `stress-ng` seeds its random numbers with the same constant each time.
        let budget = Budget::new(1, "seconds of stress", None);
        budget.add(seconds);
        match run(stressor, seconds) {
            Ok(()) => println!("{stressor}: passes"),
            Err(said) => wrong.push(said),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
