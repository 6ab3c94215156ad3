//! No call takes longer because its process has more memory, unless `docs/growth.md` says why.
//! `./x test growth` runs this test.

use std::process::Command;

use serde_json::Value;

/// The limit of a call's cost with much memory, divided by its cost with little.
const MOST: f64 = 1.5;

#[test]
#[ignore = "boots the kernel for minutes: ./x test growth"]
fn no_call_grows_with_its_process() {
    let output = Command::new(env!("CARGO_BIN_EXE_faultless"))
        .args(["bench", "--json", "-", "growth"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let file: Value = serde_json::from_slice(&output.stdout).unwrap();
    let result = &file["results"][0];
    let worst = result["value"].as_f64().unwrap();
    assert!(worst > 0.5, "{worst} of which call?");
    assert!(worst <= MOST, "a call grows {worst} times: {result:#}");
}
