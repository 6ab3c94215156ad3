//! What only AArch64 has: the context of signal handlers, the look at faulting instructions, single steps, and both ways
//! of flushing and of marking entries. `./x test aarch64` builds the kernel and runs these tests.

use faultless_tests::boot::{Machine, VERIFIED, archive, assert_prints_as_on_linux_6_12, compile};
use faultless_tests::programs::root;

#[test]
#[ignore = "boots the kernel: ./x test aarch64"]
fn a_handler_is_told_of_a_fault() {
    assert_prints_as_on_linux_6_12("aarch64/context", Machine::with_cpus(1));
}

#[test]
#[ignore = "boots the kernel: ./x test aarch64"]
fn text_that_the_kernel_reads() {
    for cpus in [1, 2] {
        assert_prints_as_on_linux_6_12("aarch64/text", Machine::with_cpus(cpus));
    }
}

#[test]
#[ignore = "boots the kernel: ./x test aarch64"]
fn addresses_with_tags_and_flags_of_others() {
    assert_prints_as_on_linux_6_12("aarch64/tags", Machine::with_cpus(1));
}

#[test]
#[ignore = "boots the kernel: ./x test aarch64"]
fn single_steps() {
    for cpus in [1, 2] {
        assert_prints_as_on_linux_6_12("aarch64/steps", Machine::with_cpus(cpus));
    }
}

/// As on Linux with the same CPU: whether it refuses loads there (FEAT_PAN3; QEMU 7.2 has none, QEMU 10 has it) is in the
/// program's third line.
#[test]
#[ignore = "boots the kernel: ./x test aarch64"]
fn memory_that_may_only_be_executed() {
    let program = compile("aarch64/execute_only");
    for cpus in [1, 2] {
        let ended = Machine::with_cpus(cpus).run(&program, &[]);
        let refuses = ended
            .stdout
            .lines()
            .nth(2)
            .is_some_and(|line| line.starts_with("load: signal"));
        let name = if refuses {
            "execute_only_pan3"
        } else {
            "execute_only"
        };
        let record = root().join(format!("tests/programs/aarch64/{name}.linux-6.12"));
        let linux = std::fs::read_to_string(record).expect("a recorded output");
        assert_eq!((ended.exit, &ended.error), (Some(0), &None), "{ended:?}");
        assert_eq!(ended.stdout, linux);
    }
}

/// Runs a test program, which ends with 0 if all is well, with these words on the kernel's command line.
fn assert_runs_by(words: &str, cpus: u32, name: &str, arguments: &[&str]) {
    let program = compile(name);
    let all = [&[name], arguments].concat();
    let all: String = all.iter().map(|one| format!("argv={one}\0")).collect();
    let run = format!("exec=/bin/test\0{all}{VERIFIED}");
    let files: [(&str, &[u8]); 2] = [("bin/test", &program), (".faultless/run", run.as_bytes())];
    let machine = Machine::with_cpus(cpus);
    let ended = machine.boot_with(&archive(&files), &[], &["-append", words]);
    assert_eq!(
        (ended.exit, &ended.error),
        (Some(0), &None),
        "{words}: {ended:?}"
    );
    ended.assert_verified();
}

/// Nothing is stale, whatever flushes and marks.
#[test]
#[ignore = "boots the kernel: ./x test aarch64"]
fn other_ways_to_flush_and_to_mark() {
    for words in [
        "flush=interrupts",
        "marks=software",
        "flush=interrupts marks=software",
        "asids=1",
        "asids=3 flush=interrupts",
    ] {
        assert_runs_by(words, 2, "stale", &["3", "3", "2"]);
    }
}

/// Spaces with the same address-space identifier. QEMU drops all translations when the identifier in use changes,
/// so only with a single one it shows whether this kernel drops those of another space.
#[test]
#[ignore = "boots the kernel: ./x test aarch64"]
fn spaces_that_share_an_identifier() {
    for (cpus, words) in [
        (1, "asids=1"),
        (2, "asids=1"),
        (2, "asids=2"),
        (2, "asids=65535"),
    ] {
        assert_runs_by(words, cpus, "spaces", &[]);
    }
}

#[test]
#[ignore = "boots the kernel: ./x test aarch64"]
fn a_command_line_that_means_nothing_is_refused() {
    let files: [(&str, &[u8]); 1] = [(".faultless/run", b"exec=/bin/none\0")];
    for words in ["marks=none", "asids=0", "asids=", "asids=x"] {
        let machine = Machine::with_cpus(1);
        let ended = machine.boot_with(&archive(&files), &[], &["-append", words]);
        assert_eq!(ended.exit, None, "{words}: {ended:?}");
    }
}

/// Frames of machines that are larger than what x86-64 maps at boot.
#[test]
#[ignore = "boots the kernel: ./x test aarch64"]
fn eight_gibibytes() {
    let machine = Machine {
        cpus: 1,
        memory: 8192,
    };
    let ended = machine.run(&compile("hello"), &[]);
    assert_eq!(ended.exit, Some(0), "{ended:?}");
}
