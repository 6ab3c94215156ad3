//! The kernel on its own: scheduling, signals, ends, and bad input. The programs are in
//! `tests/programs`. `./x test boot` builds the kernel and runs these tests.

use faultless_tests::boot::{Ended, Machine, assert_prints_as_on_linux, compile, on_the_host};

fn assert_fine(ended: &Ended) {
    assert_eq!((ended.exit, &ended.error), (Some(0), &None), "{ended:?}");
}

/// Asserts that the program ends in the kernel as on the host's Linux.
fn assert_as_on_linux(cpus: u32, name: &str, arguments: &[&str]) {
    let ended = Machine::with_cpus(cpus).run(&compile(name), arguments);
    let linux = on_the_host(name, arguments);
    assert_eq!((ended.exit, ended.signal), linux, "{arguments:?} {ended:?}");
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn spinning_threads_get_equal_shares() {
    let program = compile("fair");
    for (cpus, threads) in [(2, "4"), (2, "3"), (4, "5")] {
        assert_fine(&Machine::with_cpus(cpus).run(&program, &[threads]));
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_waiting_thread_follows_its_affinity() {
    assert_fine(&Machine::with_cpus(2).run(&compile("affinity"), &[]));
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn iretq_in_user_mode_comes_to_an_end() {
    let program = compile("iretq");
    for (arguments, dead) in [(&[][..], (None, Some(11))), (&["x"], (Some(3), None))] {
        let ended = Machine::with_cpus(1).run(&program, arguments);
        let end = (ended.exit, ended.signal);
        // Also right: an emulator that implements `iretq` correctly.
        assert!(end == dead || end == (Some(0), None), "{ended:?}");
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_signal_frame_without_room_is_sigsegv() {
    for how in ["alternate", "same", "segv", "blocked", "small"] {
        assert_as_on_linux(1, "frame", &[how]);
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn the_last_thread_gives_the_status() {
    assert_as_on_linux(2, "exits", &["first"]);
    for _ in 0..3 {
        assert_as_on_linux(4, "exits", &["together"]);
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_signal_is_handed_on() {
    assert_fine(&Machine::with_cpus(2).run(&compile("hand_over"), &[]));
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn what_libraries_ask_for_is_answered() {
    assert_prints_as_on_linux("asks", Machine::with_cpus(1));
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn too_many_threads_are_refused() {
    let program = compile("threads");
    for (memory, least) in [(32, "300"), (256, "3000")] {
        let machine = Machine {
            memory,
            ..Machine::with_cpus(2)
        };
        assert_fine(&machine.run(&program, &[least]));
    }
}
