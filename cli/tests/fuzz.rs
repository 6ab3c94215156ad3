//! Programs of memory operations on Debian's Linux 6.12, our kernel and the soft machine.
//!
//! `./x test differential` fetches Linux, builds our kernel and the executor, and runs these tests.

mod common;

use common::{run, stderr};
use serde_json::Value;

/// Runs the stored programs, and a bounded number of random ones that are always the same.
#[test]
#[ignore = "boots kernels: ./x test differential"]
fn nothing_differs() {
    let full = std::env::var_os("FAULTLESS_FULL").is_some_and(|value| value != "0");
    // A batch is one boot of each kernel; a run exceeds the requested operations by at most one batch.
    let (operations, batch) = match full {
        true => ("1000000", "8000"),
        false => ("8000", "400"),
    };
    for cpus in ["1", "2"] {
        let output = run(&[
            "fuzz",
            "differential",
            "--against=linux-6.12,faultless,soft",
            "--seed=1",
            "--cpus",
            cpus,
            "--operations",
            operations,
            "--batch",
            batch,
            "--json=-",
        ]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        let file: Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
        assert_eq!(file["schema"], 1);
        assert_eq!(
            file["differences"].as_array().map(Vec::len),
            Some(0),
            "{said}"
        );
        for side in file["sides"].as_array().expect("there are sides") {
            assert!(
                side["operations"].as_u64() >= operations.parse().ok(),
                "{side}"
            );
            assert_eq!(side["against"], "linux-6.12");
        }
    }
}

#[test]
fn bad_input_is_refused() {
    for (arguments, word) in [
        (&["--against=soft"][..], "Linux"),
        (&["--against=host"], "compared"),
        (&["--against=windows"], "windows"),
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
