//! The example runs, and is as short as it claims.

#[test]
fn it_runs_under_every_policy() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_faultless-example-port"))
        .output()
        .expect("the example starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for policy in ["classic", "vma-lock", "speculative"] {
        assert!(text.contains(&format!("{policy}: 90 pages")), "{text}");
    }
}

#[test]
fn it_is_short() {
    let lines = include_str!("../src/main.rs").lines().count()
        + include_str!("../src/machine.rs").lines().count();
    assert!(lines <= 300, "{lines} lines");
}
