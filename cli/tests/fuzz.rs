//! Programs of memory operations on Debian's Linux 6.12, our kernel and, on x86-64, the soft machine.
//!
//! `./x test differential` fetches Linux, builds our kernel and the executor, and runs these tests;
//! `./x test differential-aarch64` does so for AArch64 (`FAULTLESS_ARCH`).

mod common;

use common::{run, stderr};
use faultless_tests::arch::Arch;
use faultless_tests::budget::{Budget, full, seed, share};
use serde_json::Value;

/// Fewer than a long run's first batch has.
const OPERATIONS: u64 = 8000;

/// Pages that come back from every system's swap device. Linux does not count pages of zeroes.
const SWAPPED_IN: u64 = 100;

/// Runs the stored programs and random ones: a bounded number that are always the same, or with `--full` new ones for
/// as long as the budget lasts.
#[test]
#[ignore = "boots kernels: ./x test differential"]
fn nothing_differs() {
    // A batch is one boot of each kernel; a run exceeds its limit by at most one batch.
    let (limit, batch) = match share() {
        Some(share) => (format!("--seconds={}", share.as_secs().max(1)), "800"),
        None => (format!("--operations={OPERATIONS}"), "400"),
    };
    let seed = if full() { seed() as u32 } else { 1 };
    let (arch, against, cpus): (_, _, &[_]) = match Arch::of_machines() {
        Arch::X86_64 => ("x86_64", "linux-6.12,faultless,soft", &["1", "2"]),
        Arch::AArch64 if full() => ("aarch64", "linux-6.12,faultless", &["1", "2"]),
        // A boot of Linux takes longer there.
        Arch::AArch64 => ("aarch64", "linux-6.12,faultless", &["2"]),
    };
    for cpus in cpus {
        let budget = Budget::new(1, "operations", Some(seed.into()));
        let output = run(&[
            "fuzz",
            "differential",
            "--arch",
            arch,
            "--against",
            against,
            &format!("--seed={seed}"),
            "--cpus",
            cpus,
            &limit,
            "--batch",
            batch,
            "--json=-",
        ]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        let file: Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
        assert_eq!(file["schema"], 1);
        assert_eq!(file["arch"], arch);
        assert_eq!(
            file["differences"].as_array().map(Vec::len),
            Some(0),
            "{said}"
        );
        for side in file["sides"].as_array().expect("there are sides") {
            assert!(side["operations"].as_u64() >= Some(OPERATIONS), "{side}");
            assert_eq!(side["against"], "linux-6.12");
            for count in side["swapped_in"].as_array().expect("two counts") {
                assert!(count.as_u64() >= Some(SWAPPED_IN), "{side}");
            }
        }
        budget.add(file["sides"][0]["operations"].as_u64().unwrap_or(0));
    }
}

#[test]
fn bad_input_is_refused() {
    for (arguments, word) in [
        (&["--against=soft"][..], "Linux"),
        (&["--against=host"], "compared"),
        (&["--against=windows"], "windows"),
        (&["--arch=aarch64", "--against=linux-6.12,soft"], "soft"),
        (&["--arch=aarch64", "--against=host,faultless"], "host"),
        (&["--program=/no/such/file"], "/no/such/file"),
        (&["--batch=0"], "batch"),
        (&["--seconds=never"], "seconds"),
        (&["--cpus=9"], "cpus"),
    ] {
        let output = run(&[&["fuzz", "differential"], arguments].concat());
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        assert!(stderr(&output).contains(word), "{}", stderr(&output));
    }
}
