//! The example runs, and is as short as it claims.

#[test]
fn it_moves_a_running_guest() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_faultless-example-vmm"))
        .output()
        .expect("the example starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for line in [
        "loaded 40 pages",
        "round 1: copied 1024 pages",
        "stopped by Some(Device { address: 4096 })",
        "both guests have the same 1024 pages",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn it_is_short() {
    let lines = include_str!("../src/main.rs").lines().count()
        + include_str!("../src/memory.rs").lines().count();
    assert!(lines <= 300, "{lines} lines");
}
