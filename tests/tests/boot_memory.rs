//! Memory beyond `mmap`, as on Linux. `./x test boot` builds the kernel and runs these tests.

use faultless_tests::boot::{
    Machine, archive, assert_prints_as_on_linux, assert_prints_as_on_linux_6_12, compile,
};

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn moving_looking_and_advising() {
    for cpus in [1, 2, 4] {
        assert_prints_as_on_linux("memory", Machine::with_cpus(cpus));
    }
}

/// Compared with Linux only if the host's kernel has guards; 6.12 has none.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn guards() {
    const GUARD_INSTALL: i32 = 102;
    // SAFETY: the range is empty.
    let known = unsafe { libc::madvise(std::ptr::null_mut(), 0, GUARD_INSTALL) == 0 };
    for cpus in [1, 2, 4] {
        let machine = Machine::with_cpus(cpus);
        if known {
            assert_prints_as_on_linux("guards", machine);
        } else {
            // The program's own checks have to do.
            let ended = machine.run(&compile("guards"), &[]);
            assert_eq!((ended.exit, &ended.error), (Some(0), &None), "{ended:?}");
        }
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn advice_seals_and_barriers() {
    for cpus in [1, 2, 4] {
        assert_prints_as_on_linux_6_12("advice", Machine::with_cpus(cpus));
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn huge_pages() {
    for cpus in [1, 2] {
        assert_prints_as_on_linux_6_12("huge", Machine::with_cpus(cpus));
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn huge_pages_of_shared_memory() {
    for cpus in [1, 2] {
        assert_prints_as_on_linux_6_12("huge_shared", Machine::with_cpus(cpus));
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn the_pool_of_huge_pages() {
    for cpus in [1, 2] {
        assert_prints_as_on_linux_6_12("hugetlb", Machine::with_cpus(cpus));
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn huge_pages_made_in_the_background() {
    for cpus in [1, 2] {
        assert_prints_as_on_linux_6_12("khugepaged", Machine::with_cpus(cpus));
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn handlers_in_user_mode() {
    for cpus in [1, 2, 4] {
        assert_prints_as_on_linux_6_12("userfault", Machine::with_cpus(cpus));
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn parallel_writers_of_disjoint_ranges() {
    for cpus in [1, 2, 4] {
        assert_prints_as_on_linux("parallel", Machine::with_cpus(cpus));
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn lazily_freed_pages_are_reclaimed_before_a_process_is_killed() {
    let program = compile("let_go");
    for cpus in [1, 2] {
        let ended = Machine::with_cpus(cpus).run(&program, &[]);
        assert_eq!((ended.exit, &ended.error), (Some(0), &None), "{ended:?}");
        assert_eq!(ended.stdout, "no process died\n");
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn locking_limiting_and_counting() {
    for cpus in [1, 2] {
        assert_prints_as_on_linux("limits", Machine::with_cpus(cpus));
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn what_is_said_of_pages() {
    for cpus in [1, 2, 4] {
        assert_prints_as_on_linux_6_12("watched", Machine::with_cpus(cpus));
    }
}

/// Linux counts in batches and may be off by a few pages, so only the program's own checks count.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn what_is_counted_is_what_is_there() {
    let program = compile("counted");
    for cpus in [1, 2, 4] {
        let ended = Machine::with_cpus(cpus).run(&program, &[]);
        assert_eq!((ended.exit, &ended.error), (Some(0), &None), "{ended:?}");
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn memory_that_is_executed_only() {
    for cpus in [1, 2] {
        assert_prints_as_on_linux_6_12("execute_only", Machine::with_cpus(cpus));
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn what_flags_of_mappings_do() {
    for cpus in [1, 2, 4] {
        assert_prints_as_on_linux_6_12("map_flags", Machine::with_cpus(cpus));
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn memory_by_its_addresses() {
    for cpus in [1, 2, 4] {
        assert_prints_as_on_linux("reached", Machine::with_cpus(cpus));
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn listings_in_pieces() {
    for cpus in [1, 2] {
        assert_prints_as_on_linux("listings", Machine::with_cpus(cpus));
    }
}

/// Without the verifier: a verification takes longer than the delay that is measured, and blocks other threads.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn taking_pages_away_lets_others_run() {
    let files = [
        ("bin/test", &compile("resched")[..]),
        (".faultless/run", b"exec=/bin/test\0argv=test\0"),
    ];
    let machine = Machine {
        cpus: 1,
        memory: 256,
    };
    let ended = machine.boot(&archive(&files));
    assert_eq!((ended.exit, &ended.error), (Some(0), &None), "{ended:?}");
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn one_node() {
    assert_prints_as_on_linux_6_12("nodes", Machine::with_cpus(1));
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn merging_never_begins() {
    assert_prints_as_on_linux("ksm", Machine::with_cpus(1));
}
