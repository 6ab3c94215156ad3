//! Files, pipes and waiting for them, as on the host's Linux. `./x test boot` builds the kernel and
//! runs these tests.

use faultless_tests::boot::{Machine, compile, printed_on_the_host};

/// Prints in the kernel what it prints on the host, line by line.
fn assert_prints_as_on_linux(name: &str, cpus: u32) {
    let program = compile(name);
    let linux = printed_on_the_host(&program);
    let ended = Machine::with_cpus(cpus).run(&program, &[]);
    assert_eq!((ended.exit, &ended.error), (Some(0), &None), "{ended:?}");
    for (here, there) in ended.stdout.lines().zip(linux.lines()) {
        assert_eq!(here, there, "the kernel's line, and Linux's");
    }
    assert_eq!(ended.stdout, linux);
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn files_and_directories() {
    assert_prints_as_on_linux("files", 1);
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn locks() {
    for cpus in [1, 2, 4] {
        assert_prints_as_on_linux("locks", cpus);
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn pipes_and_waiting() {
    for cpus in [1, 2, 4] {
        assert_prints_as_on_linux("waits", cpus);
    }
}
