//! Processes in the kernel: creation, exit, wait, signals, and the choice of a victim when memory is exhausted.
//! The programs are in `tests/programs` and run on Linux too. `./x test boot` builds the kernel and runs
//! these tests.

use faultless_tests::boot::{Machine, assert_prints_as_on_linux, compile, on_the_host};

/// Asserts that the program ends in the kernel as on the host's Linux, and prints the same.
fn assert_as_on_linux(name: &str, said: &str, cpus: &[u32]) {
    let program = compile(name);
    assert_eq!(on_the_host(name, &[]), (Some(0), None));
    for &cpus in cpus {
        let ended = Machine::with_cpus(cpus).run(&program, &[]);
        assert_eq!((ended.exit, &ended.error), (Some(0), &None), "{ended:?}");
        assert_eq!(ended.stdout, said);
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn processes_begin_and_end_as_on_linux() {
    assert_as_on_linux("processes", "processes: all as on Linux\n", &[1, 2, 4, 16]);
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn other_programs_begin_as_on_linux() {
    assert_as_on_linux("execs", "execs: all as on Linux\n", &[1, 2, 4, 16]);
}

/// With 64 MiB of memory, none of which may leak.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn corners_of_processes_are_as_on_linux() {
    assert_as_on_linux("corners", "corners: all as on Linux\n", &[1, 2, 4]);
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn faults_are_counted_as_on_linux() {
    assert_as_on_linux("faults", "faults: all as on Linux\n", &[1, 2]);
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn timers_send_signals_as_on_linux() {
    assert_as_on_linux("timers", "timers: all as on Linux\n", &[1, 2]);
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn the_largest_process_dies_for_the_others() {
    let program = compile("exhausted");
    for cpus in [1, 2, 4] {
        let ended = Machine::with_cpus(cpus).run(&program, &[]);
        assert_eq!((ended.exit, &ended.error), (Some(0), &None), "{ended:?}");
        let killed = ended
            .stderr
            .matches("out of memory: killed process")
            .count();
        assert_eq!(killed, 7, "{ended:?}");
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn cpu_time_is_limited() {
    for cpus in [1, 2] {
        assert_prints_as_on_linux("cpu_limit", Machine::with_cpus(cpus));
    }
}
