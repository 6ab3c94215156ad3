//! Linux's own tests of KVM in the kernel. `./x test kvm` builds them and runs this test.
//!
//! All of them pass on Linux's KVM in the same emulator. They open themselves as a file, so they are given to the machine
//! under their own path.

mod common;

use std::process::{Command, Stdio};

use common::{programs, stderr, stdout};

/// Runs `NAME ARGUMENTS` with these options of the machine. Returns what it said, or `None` if it is not built.
fn run(options: &str, line: &str) -> Option<String> {
    let mut words = line.split(' ');
    let path = programs::of_linux("kvm", words.next()?)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_faultless"));
    command.args(["run", "--memory", "2G", "--timeout", "300", "--file"]);
    command.arg(&path).args(options.split(' ')).arg("--");
    let output = command.arg(&path).args(words).stdin(Stdio::null()).output();
    let output = output.expect("the command starts");
    let said = format!("{}{}", stdout(&output), stderr(&output));
    assert!(output.status.success(), "{options} {line}: {said}");
    Some(said)
}

/// Runs tests that say nothing but whether they pass.
fn all_pass(options: &str, lines: &[&str]) {
    for line in lines {
        run(options, line);
    }
}

/// Both MMUs; without a fast path and accessed bits the first one.
const WAYS: [&str; 2] = [
    "--cpus 2 --verify --kvm=fast_page_fault=N,accessed_bits=N",
    "--cpus 2 --verify --kvm=tdp_mmu=N",
];

#[test]
#[ignore = "boots the kernel for minutes: ./x test kvm"]
fn registers_and_exits() {
    let lines = [
        "set_sregs_test",
        "state_test",
        "sync_regs_test",
        "userspace_io_test",
        "exit_on_emulation_failure_test",
        "kvm_binary_stats_test",
        "kvm_create_max_vcpus",
        "cpuid_test",
        "cr4_cpuid_sync_test",
        "get_msr_index_features",
        "guest_print_test",
        "hwcr_msr_test",
        "max_vcpuid_cap_test",
        "platform_info_test",
        "set_boot_cpu_id",
        "system_counter_offset_test",
        "tsc_msrs_test",
    ];
    all_pass("--cpus 2 --verify", &lines);
}

#[test]
#[ignore = "boots the kernel for minutes: ./x test kvm"]
fn slots() {
    let lines = [
        "set_memory_region_test",
        "pre_fault_memory_test",
        "memslot_modification_stress_test -i 10 -b 4M",
        "memslot_perf_test -l 1",
        "kvm_page_table_test -b 4M -v 2",
    ];
    all_pass(WAYS[0], &lines);
    all_pass(WAYS[1], &lines[1..]);
}

#[test]
#[ignore = "boots the kernel for minutes: ./x test kvm"]
fn pages_that_userfaultfd_brings() {
    let lines = [
        "demand_paging_test -b 4M",
        "demand_paging_test -u MISSING -b 2M",
        "demand_paging_test -u MINOR -s shmem -b 2M",
    ];
    WAYS.iter().for_each(|way| all_pass(way, &lines));
}

#[test]
#[ignore = "boots the kernel for minutes: ./x test kvm"]
fn the_dirty_log_is_right() {
    // All modes, and rings that fill up.
    let lines = [
        "dirty_log_test -i 3 -I 10",
        "dirty_log_test -M dirty-ring -c 1024 -i 5 -I 10",
    ];
    for way in ["--cpus 2 --kvm", "--cpus 2 --kvm=tdp_mmu=N"] {
        all_pass(way, &lines);
    }
}

/// Guests of huge pages: split for the log and whole again, by both MMUs; at the first store, without eager splits.
#[test]
#[ignore = "boots the kernel for minutes: ./x test kvm"]
fn huge_pages() {
    let lines = [
        "dirty_log_perf_test -s anonymous_thp -v 2 -b 16M",
        "dirty_log_perf_test -s anonymous_thp -v 2 -b 16M -g",
        "kvm_page_table_test -s anonymous_thp -b 16M -v 2",
        "demand_paging_test -s anonymous_thp -b 8M -v 2",
        "access_tracking_perf_test -s anonymous_thp -b 8M -v 2",
    ];
    for kvm in [
        "",
        "=tdp_mmu=N",
        "=eager_page_split=N",
        "=tdp_mmu=N,eager_page_split=N",
        "=fast_page_fault=N,accessed_bits=N",
    ] {
        let options = format!("--cpus 2 --huge always --verify --kvm{kvm}");
        all_pass(&options, &lines);
    }
}

/// Linux's names of the times, which its users know.
#[test]
#[ignore = "boots the kernel for minutes: ./x test kvm"]
fn the_dirty_log_prints_its_times() {
    for (cpus, more) in [
        ("1", "-v 1"),
        ("2", "-v 2"),
        ("4", "-v 4"),
        ("2", "-v 2 -o"),
        ("2", "-v 2 -s shmem"),
        ("2", "-v 2 -p 0x100000"),
    ] {
        let line = format!("dirty_log_perf_test -b 4M {more}");
        let Some(said) = run(&format!("--cpus {cpus}"), &line) else {
            return;
        };
        for time in [
            "Populate memory time: ",
            "Enabling dirty logging time: ",
            "Iteration 2 dirty memory time: ",
            "Iteration 2 get dirty log time: ",
            "Iteration 2 clear dirty log time: ",
            "Disabling dirty logging time: ",
        ] {
            assert!(said.contains(time), "{cpus} CPUs, {line}: {said}");
        }
    }
}
