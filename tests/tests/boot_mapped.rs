//! Mapped files and shared memory, as on the host's Linux. `./x test boot` builds the kernel and runs
//! these tests.

use faultless_tests::boot::{
    Machine, assert_prints_as_on_linux, assert_prints_as_on_linux_when_dynamic, compile,
};

fn assert_as_on_linux(name: &str) {
    for cpus in [1, 2, 4] {
        assert_prints_as_on_linux(name, Machine::with_cpus(cpus));
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn mapped_files() {
    assert_as_on_linux("mapped");
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn files_that_become_shorter() {
    assert_as_on_linux("truncated");
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn memory_with_a_descriptor() {
    assert_as_on_linux("memfd");
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn memory_that_processes_share() {
    assert_as_on_linux("shared");
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn memory_of_other_processes() {
    assert_as_on_linux("process_vm");
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn lines_of_maps() {
    assert_prints_as_on_linux("lines", Machine::with_cpus(1));
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn dynamically_linked_programs() {
    for cpus in [1, 2] {
        assert_prints_as_on_linux_when_dynamic("interpreted", Machine::with_cpus(cpus));
    }
}

/// Maps the timer's registers. The host may have none to map, so the program knows Linux's answers itself:
/// `./x compare --linux 6.12` checks them there.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_device() {
    for cpus in [1, 2] {
        let ended = Machine::with_cpus(cpus).run(&compile("device"), &[]);
        assert_eq!((ended.exit, &ended.error), (Some(0), &None), "{ended:?}");
        assert_eq!(ended.stdout, "device: all as it should be\n");
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn files_have_half_of_memory() {
    for cpus in [1, 4] {
        let ended = Machine::with_cpus(cpus).run(&compile("full"), &[]);
        assert_eq!((ended.exit, &ended.error), (Some(0), &None), "{ended:?}");
        assert_eq!(ended.stdout, "full: all as it should be\n");
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn parts_of_files_are_mapped_again() {
    assert_prints_as_on_linux("remap", Machine::with_cpus(1));
}
