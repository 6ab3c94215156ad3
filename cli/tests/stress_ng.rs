//! Debian's `stress-ng` in the kernel: five seconds of each stressor of memory with two CPUs, which
//! checks what it reads. `./x test stress-ng` installs it and runs these tests.

mod common;

use std::process::{Command, Stdio};

/// The stressors, and of those that the kernel cannot pass yet, why.
const STRESSORS: [(&str, Option<&str>); 17] = [
    ("mmap", None),
    ("mmapfork", None),
    ("mmapfixed", None),
    ("mmapaddr", None),
    ("mmapmany", None),
    ("mremap", None),
    ("madvise", None),
    ("mprotect", None),
    ("brk", None),
    ("stack", None),
    ("vm", None),
    ("vm-segv", Some("it stops its child by ptrace")),
    ("vm-addr", None),
    ("fork", None),
    ("tmpfs", None),
    ("memfd", None),
    ("malloc", None),
];

/// Whether it passes, and what was said.
fn run(stressor: &str) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faultless"));
    command.args(["run", "--verify", "--list-unknown", "--cpus", "2"]);
    command.args(["--memory", "2G", "--timeout", "400", "--", "stress-ng"]);
    command.args(["--verify", "--metrics-brief", "-t", "5"]);
    command
        .args([&format!("--{stressor}"), "2"])
        .stdin(Stdio::null());
    command.env_remove("LD_LIBRARY_PATH");
    let output = command.output().unwrap();
    let said = format!("{}{}", common::stdout(&output), common::stderr(&output));
    // It may fail and end well, or leave a stressor out.
    let bad = [
        "fail:",
        "skip",
        "unsuccessful",
        "panic",
        "verification failed",
    ];
    let is_bad = bad.iter().any(|word| said.contains(word));
    let is_good = said.contains("successful run completed");
    (output.status.success() && is_good && !is_bad, said)
}

#[test]
#[ignore = "boots the kernel for minutes: ./x test stress-ng"]
fn no_stressor_of_memory_finds_anything() {
    let mut wrong = Vec::new();
    for (stressor, known) in STRESSORS {
        let (passes, said) = run(stressor);
        match (passes, known) {
            (true, None) => println!("{stressor}: passes"),
            (false, Some(why)) => println!("{stressor}: fails, as known: {why}"),
            (true, Some(why)) => wrong.push(format!("{stressor} passes, although {why}")),
            (false, None) => wrong.push(format!("{stressor} fails:\n{said}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
