//! Files, pipes and waiting for them, as on the host's Linux. `./x test boot` builds the kernel and
//! runs these tests.

use faultless_tests::boot::{Machine, assert_prints_as_on_linux};

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn files_and_directories() {
    assert_prints_as_on_linux("files", Machine::with_cpus(1));
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn locks() {
    for cpus in [1, 2, 4] {
        assert_prints_as_on_linux("locks", Machine::with_cpus(cpus));
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn pipes_and_waiting() {
    for cpus in [1, 2, 4] {
        assert_prints_as_on_linux("waits", Machine::with_cpus(cpus));
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn the_size_of_files_is_limited() {
    assert_prints_as_on_linux("file_size", Machine::with_cpus(1));
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn epoll_has_room_for_all_its_items() {
    for cpus in [4, 8] {
        assert_prints_as_on_linux("epoll_adds", Machine::with_cpus(cpus));
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn ranges_of_descriptors() {
    for cpus in [1, 2] {
        assert_prints_as_on_linux("descriptors", Machine::with_cpus(cpus));
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn memory_goes_through_pipes() {
    for cpus in [1, 2] {
        assert_prints_as_on_linux("vmsplice", Machine::with_cpus(cpus));
    }
}
