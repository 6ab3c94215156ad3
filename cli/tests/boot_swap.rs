//! Swap in the kernel: pages go to compressed memory and come back, at the cost that is promised, and the machine is
//! sound. `./x test boot` runs this.

mod common;

use common::{run, stderr, stdout};
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
    let text = std::fs::read_to_string(file).unwrap();
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
