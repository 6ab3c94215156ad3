//! Reclaim in the kernel: programs that use more memory than there is run to the end with right results, and the
//! largest process is killed only when swap is full. `./x test boot` runs this.

mod common;

use std::fs;

use common::{programs, run, stderr, stdout};
use serde_json::Value;

/// Random writes to 1.5 times the memory. Faults hold no lock, whatever is reclaimed meanwhile.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn random_writes_to_more_than_memory() {
    for cpus in [1, 2, 4] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("stat.json");
        let line = format!(
            "stat --cpus {cpus} --memory 96M --swap 128M --verify --timeout 300 --json {} -- overcommit 120 10000",
            file.display()
        );
        let output = run(&line.split(' ').collect::<Vec<_>>());
        let said = format!("{}{}", stdout(&output), stderr(&output));
        assert_eq!(output.status.code(), Some(0), "{said}");
        let stat: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        let counters = &stat["runs"][0]["counters"];
        let of = |name: &str| counters[name].as_u64().unwrap();
        let stolen = of("pgsteal_kswapd") + of("pgsteal_direct");
        assert!(of("pswpin") > 1000 && of("pswpout") > 1000, "{counters}");
        assert!(stolen >= of("pswpout"), "{counters}");
        assert!(
            of("pgscan_kswapd") + of("pgscan_direct") >= stolen,
            "{counters}"
        );
        assert_eq!(of("spf"), of("faults"), "{counters}");
    }
}

/// Every kind of memory, in several processes.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn every_kind_of_page_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let program = programs::build("reclaim", "gcc", &["-static"], folder.path());
    let program = program.to_str().unwrap();
    for (cpus, swap) in [
        ("1", "256M"),
        ("2", "256M"),
        ("4", "256M"),
        ("2", "256M:disk"),
    ] {
        let line = [
            "run",
            "--cpus",
            cpus,
            "--memory",
            "80M",
            "--swap",
            swap,
            "--verify",
            "--timeout",
            "300",
            "--",
            program,
            "20",
        ];
        let output = run(&line);
        let said = format!("{}{}", stdout(&output), stderr(&output));
        assert_eq!(output.status.code(), Some(0), "{cpus} {swap}: {said}");
        assert!(said.contains("all pages are right"), "{said}");
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn the_largest_process_is_killed_when_swap_is_full() {
    for cpus in ["1", "2"] {
        let line = format!(
            "run --cpus {cpus} --memory 64M --swap 16M:ram --verify --timeout 120 -- overcommit 200 1000"
        );
        let output = run(&line.split(' ').collect::<Vec<_>>());
        let said = format!("{}{}", stdout(&output), stderr(&output));
        assert_eq!(output.status.code(), Some(137), "{said}");
        assert!(said.contains("out of memory: killed process"), "{said}");
    }
}
