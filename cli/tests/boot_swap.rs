//! Swap in the kernel: pages go to compressed memory and come back, at the cost that is promised, and the machine is
//! sound. `./x test boot` runs this.

mod common;

use std::fs;

use common::{programs, run, stderr, stdout};
use serde_json::Value;

/// The counters of `forceswap THREADS ROUNDS PAGES`, which runs one round more than it measures, and checks every
/// page.
fn counters(cpus: u32, threads: u32, rounds: u64, pages: u64) -> Value {
    counters_on("64M", cpus, threads, rounds, pages)
}

/// The same with another swap device.
fn counters_on(swap: &str, cpus: u32, threads: u32, rounds: u64, pages: u64) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stat.json");
    let line = format!(
        "stat --cpus {cpus} --swap {swap} --verify --timeout 300 --json {} -- forceswap {threads} {rounds} {pages}",
        file.display()
    );
    let output = run(&line.split(' ').collect::<Vec<_>>());
    let said = format!("{}{}", stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{said}");
    let all = rounds * pages;
    assert!(said.contains(&format!("paged: {all} of {all}")), "{said}");
    let text = fs::read_to_string(file).unwrap();
    let stat: Value = serde_json::from_str(&text).unwrap();
    stat["runs"][0]["counters"].clone()
}

/// With the other CPUs at work in the same memory: one flush for each round of up to 32 pages, one fault for each
/// page that comes back, and nothing for the write that follows.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_page_that_comes_back_is_written_without_a_fault() {
    for (cpus, threads) in [(1, 1), (2, 2), (4, 4)] {
        let (rounds, pages) = (50, 32);
        let counters = counters(cpus, threads, rounds, pages);
        let of = |name: &str| counters[name].as_u64().unwrap();
        let moved = (rounds + 1) * pages;
        assert_eq!(of("pswpout"), moved, "{counters}");
        assert_eq!(of("pswpin"), moved, "{counters}");
        assert_eq!(of("pgmajfault"), moved, "{counters}");
        // Those of the program's start, and of its threads' stacks.
        let others = of("faults") - moved;
        assert!(others < 60, "{others} other faults: {counters}");
        assert!(of("pgcopy") < 10, "{counters}");
        let flushes = of("nr_tlb_remote_flush");
        match cpus {
            1 => assert_eq!(flushes, 0, "{counters}"),
            _ => assert!((1..=rounds + 10).contains(&flushes), "{counters}"),
        }
        assert!(of("spf") * 100 >= of("faults") * 99, "{counters}");
    }
}

/// Batches have at most 32 pages.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_large_page_out_has_a_flush_for_each_batch() {
    let counters = counters(2, 2, 4, 1024);
    let flushes = counters["nr_tlb_remote_flush"].as_u64().unwrap();
    let batches = 5 * (1 + 1024 / 32);
    assert!((1..=batches + 10).contains(&flushes), "{counters}");
}

/// The other devices: every page goes to the device and comes back, whatever waits for it meanwhile.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_ram_disk_and_a_disk_of_the_host() {
    for swap in ["64M:ram", "64M:disk"] {
        for (cpus, threads) in [(1, 1), (2, 4)] {
            let (rounds, pages) = (5, 200);
            let counters = counters_on(swap, cpus, threads, rounds, pages);
            let of = |name: &str| counters[name].as_u64().unwrap();
            let moved = (rounds + 1) * pages;
            assert_eq!(of("pswpout"), moved, "{swap}: {counters}");
            assert_eq!(of("pswpin"), moved, "{swap}: {counters}");
        }
    }
}

/// `swapon`, `swapoff`, advice and `/proc/swaps`: the same as on Linux with a RAM disk, on each device.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn swap_ends_and_begins_as_on_linux() {
    let folder = tempfile::tempdir().unwrap();
    let program = programs::build("swaps", "gcc", &["-static"], folder.path());
    let program = program.to_str().unwrap();
    let record = programs::root().join("tests/programs/swaps.linux-6.12");
    let record = fs::read_to_string(record).unwrap();
    for (swap, device, cpus) in [
        ("64M:ram", "/dev/ram0", "1"),
        ("64M:ram", "/dev/ram0", "4"),
        ("64M", "/dev/zram0", "2"),
        ("64M:disk", "/dev/vda", "2"),
    ] {
        let linux = record.replace(&format!("{:40}", "/dev/ram0"), &format!("{device:40}"));
        let line = [
            "run", "--cpus", cpus, "--swap", swap, "--verify", "--", program, device,
        ];
        let output = run(&line);
        assert_eq!(output.status.code(), Some(0), "{swap}: {}", stderr(&output));
        assert_eq!(stdout(&output), linux, "{swap}");
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn without_room_swap_does_not_end() {
    let folder = tempfile::tempdir().unwrap();
    let program = programs::build("no_room", "gcc", &["-static"], folder.path());
    let program = program.to_str().unwrap();
    for (swap, device) in [("128M", "/dev/zram0"), ("128M:disk", "/dev/vda")] {
        let line = [
            "run", "--memory", "96M", "--swap", swap, "--verify", "--", program, device,
        ];
        let output = run(&line);
        assert_eq!(output.status.code(), Some(0), "{swap}: {}", stderr(&output));
    }
}

/// The slots of a device take memory.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn swap_that_is_too_large_is_refused() {
    for swap in ["32G", "32G:ram", "32G:disk"] {
        let line = [
            "run",
            "--memory",
            "64M",
            "--swap",
            swap,
            "--",
            "/bin/busybox",
            "true",
        ];
        let output = run(&line);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{swap}: {said}");
        assert!(
            said.contains("there is too little memory for"),
            "{swap}: {said}"
        );
    }
}

/// A fast device has none, whatever the setting.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_slow_disk_has_read_ahead() {
    let folder = tempfile::tempdir().unwrap();
    let program = programs::build("read_ahead", "gcc", &["-static"], folder.path());
    let program = program.to_str().unwrap();
    for (swap, fewest, most) in [("64M", 800, 800), ("64M:disk", 100, 150)] {
        let output = run(&["run", "--swap", swap, "--verify", "--", program]);
        let said = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{swap}: {}", stderr(&output));
        let mut lines = said.lines();
        assert_eq!(lines.next(), Some("cluster 0: 800"), "{swap}");
        let waits = lines
            .next()
            .and_then(|line| line.strip_prefix("cluster 3: "));
        let waits: u32 = waits.unwrap().parse().unwrap();
        assert!((fewest..=most).contains(&waits), "{swap}: {said}");
    }
}
