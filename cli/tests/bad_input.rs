//! What the command refuses: in one clear line, with status 125, before anything starts.

mod common;

use std::fs;
use std::path::PathBuf;

use common::{assert_refused, faultless, run, stderr, stdout};

/// A folder with one file.
fn file(content: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    fs::write(&path, content).unwrap();
    (folder, path)
}

#[test]
fn options() {
    for (arguments, part) in [
        (
            &["run", "--policy", "fast", "--", "ebizzy"][..],
            "classic, vma-lock, speculative",
        ),
        (&["run", "--machine", "toaster"], "kernel, soft"),
        (&["run", "--accel", "magic", "--", "ebizzy"], "tcg, kvm"),
        (&["run", "--cpus", "0", "--", "ebizzy"], "1 to 16"),
        (&["run", "--cpus", "17", "--", "ebizzy"], "1 to 16"),
        (&["run", "--cpus", "many", "--", "ebizzy"], "--cpus"),
        (
            &["run", "--cpus", "65", "--machine", "soft", "--", "ebizzy"],
            "1 to 64",
        ),
        (&["run", "--cpus", "0"], "1 to 16"),
        (&["run", "--memory", "lots", "--", "ebizzy"], "not a size"),
        (&["run", "--memory", "1K", "--", "ebizzy"], "32M"),
        (&["run", "--memory", "9999G", "--", "ebizzy"], "32M"),
        (
            &["run", "--memory", "99999999999999999999", "--", "ebizzy"],
            "too large",
        ),
        (&["run", "--timeout", "0", "--", "ebizzy"], "more than 0"),
        (&["run", "--timeout", "nan", "--", "ebizzy"], "--timeout"),
        (
            &["run", "--timeout", "soon", "--", "ebizzy"],
            "not a number",
        ),
        (&["run", "--polcy", "classic"], "--polcy"),
        (
            &["run", "--machine", "soft", "--accel", "kvm", "--", "ebizzy"],
            "--accel",
        ),
        (&["walk"], "walk"),
        (
            &["run", "--arch", "mips", "--", "ebizzy"],
            "x86_64, aarch64",
        ),
        (
            &["run", "--machine", "soft", "--arch", "aarch64"],
            "--arch is for the kernel",
        ),
        (
            &["run", "--arch", "aarch64", "--accel", "kvm", "--", "ebizzy"],
            "does not execute AArch64",
        ),
        (
            &["stat", "--arch", "aarch64", "--kvm", "--", "ebizzy"],
            "no guests on AArch64",
        ),
        (
            &["run", "--root", "/no/such", "--", "ebizzy"],
            "not a folder",
        ),
        (&["run", "--file", "no-such", "--", "ebizzy"], "cannot read"),
        (&["run", "--file", "..", "--", "ebizzy"], "say where"),
        (
            &["run", "--machine", "soft", "--root", "/tmp", "--", "ebizzy"],
            "no files",
        ),
        (
            &[
                "run",
                "--machine",
                "soft",
                "--swap",
                "1M:disk",
                "--",
                "forceswap",
            ],
            "has no disk",
        ),
        (&["run", "--env", "=x", "--", "ebizzy"], "NAME=VALUE"),
        (
            &["run", "--env", "NO_SUCH_NAME", "--", "ebizzy"],
            "no variable",
        ),
        (
            &["run", "--machine", "soft", "--env", "A=1", "--", "ebizzy"],
            "no files",
        ),
        (
            &["compare", "--file", "Cargo.toml", "--suite"],
            "not for --suite",
        ),
        (&["bench", "no_such_figure"], "no figure 'no_such_figure'"),
        (&["bench", "--jsn", "x"], "--jsn"),
        (&["compare", "--linux", "2.4", "--", "ebizzy"], "6.1, 6.12"),
        (&["compare", "--cpus", "0", "--", "ebizzy"], "1 to 16"),
        (&["compare", "--cpus", "17", "--suite"], "1 to 16"),
        (&["compare", "--memory", "1K", "--", "ebizzy"], "32M"),
        (&["compare", "--repeat", "0", "--", "ebizzy"], "--repeat"),
        (
            &["compare", "--timeout", "0", "--", "ebizzy"],
            "more than 0",
        ),
        (&["compare", "--suite", "--", "ebizzy"], "--suite"),
        (
            &["compare", "--swap", "lots", "--", "forceswap"],
            "not a size",
        ),
        (&["compare", "--swap", "4K", "--", "forceswap"], "1M to 32G"),
        (
            &["compare", "--swap", "1M:tape", "--", "forceswap"],
            "zram, ram or disk",
        ),
        (&["compare", "--swap", "1M", "--suite"], "--suite"),
        (&["compare", "--quick", "--", "ebizzy"], "--suite"),
        (&["compare", "--suite", "--only", "x"], "no workload 'x'"),
        (&["compare"], "a program is missing"),
        (&["compare", "-x"], "'-x'"),
    ] {
        assert_refused(arguments, part);
    }
}

#[test]
fn no_command() {
    assert_refused(&[], "run, stat, trace, bench");
}

#[test]
fn files_that_cannot_be_read_or_written() {
    assert_refused(&["run", "--", "./no/such/file"], "No such file");
    assert_refused(&["run", "--", "no-such-workload"], "ebizzy");
    assert_refused(&["run", "--", "no-such-workload"], "none in PATH");
    assert_refused(&["run", "--", "/"], "not a file");
    assert_refused(&["run", "--", ""], "no file");
    assert_refused(&["compare", "--", "./no/such/file"], "No such file");
    assert_refused(
        &["compare", "--json", "/no/such/folder/x.json", "--suite"],
        "cannot write",
    );
    assert_refused(
        &["run", "--json", "/no/such/folder/x.json", "--", "ebizzy"],
        "cannot write",
    );
    assert_refused(&["run", "--json", "/", "--", "ebizzy"], "cannot write");
    assert_refused(&["run", "--json", "", "--", "ebizzy"], "empty");
    assert_refused(
        &["bench", "--json", "/no/such/folder/x.json"],
        "cannot write",
    );
}

#[test]
fn programs_that_are_none() {
    for (content, part) in [
        (&b""[..], "not an ELF file"),
        (
            b"#!/no/such/shell\necho hello\n",
            "interpreter /no/such/shell is not there",
        ),
        (b"\x7fELF", "truncated"),
        (
            b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0",
            "truncated",
        ),
    ] {
        let (_folder, path) = file(content);
        assert_refused(&["run", "--", path.to_str().unwrap()], part);
    }
}

#[test]
fn programs_of_another_kind() {
    let own = fs::read(env!("CARGO_BIN_EXE_faultless")).unwrap();
    let (_folder, path) = file(&own);
    let path = path.to_str().unwrap();
    let changed = |at: usize, value: u8| {
        let mut other = own.clone();
        other[at] = value;
        fs::write(path, &other).unwrap();
    };
    let wrong = ["run", "--arch", "aarch64", "--", path];
    assert_refused(&wrong, "--arch aarch64: program is a program for x86-64");
    // For AArch64, with the interpreter of x86-64.
    changed(18, 183);
    assert_refused(
        &["run", "--", path],
        "its interpreter /lib64/ld-linux-x86-64",
    );
    let wrong = ["run", "--arch", "x86_64", "--", path];
    assert_refused(&wrong, "--arch x86_64: program is a program for AArch64");
    changed(18, 243);
    assert_refused(&["run", "--", path], "it is for RISC-V");
    changed(4, 1);
    assert_refused(&["run", "--", path], "it is for x86-64, 32-bit");
    changed(5, 2);
    assert_refused(&["run", "--", path], "big-endian");
    fs::write(path, &own[..100]).unwrap();
    assert_refused(&["run", "--", path], "truncated");
}

#[test]
fn a_program_larger_than_memory() {
    let (_folder, path) = file(b"\x7fELF");
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    assert_refused(
        &["run", "--memory", "64M", "--", path.to_str().unwrap()],
        "larger than",
    );
}

#[test]
fn a_machine_that_is_not_there() {
    let path = if cfg!(target_os = "linux") {
        "/bin/true"
    } else {
        return;
    };
    let output = faultless(&["run", "--", path])
        .env("PATH", "/nowhere")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    let output = faultless(&["run", "--", "ebizzy"])
        .env("FAULTLESS_NO_QEMU", "1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("QEMU"), "{}", stderr(&output));
}

#[test]
fn a_refusal_leaves_no_file_behind() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let arguments = [
        "run",
        "--json",
        json.to_str().unwrap(),
        "--cpus",
        "17",
        "--",
        "ebizzy",
    ];
    assert_eq!(run(&arguments).status.code(), Some(125));
    assert!(!json.exists());
}

#[test]
fn help_is_no_refusal() {
    for arguments in [
        &["--help"][..],
        &["run", "--help"],
        &["bench", "--help"],
        &["stat", "--help"],
        &["trace", "--help"],
        &["trace", "summary", "--help"],
        &["help", "run"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(stdout(&output).contains("Examples:"), "{arguments:?}");
        assert_eq!(stderr(&output), "");
    }
}

#[test]
fn a_reader_of_a_list_may_end() {
    for arguments in [
        &["bench", "--list"][..],
        &["compare", "--list"],
        &["--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = faultless(arguments).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(stderr(&output), "");
    }
}

#[test]
fn x_learns_what_is_needed_before_anything_is_installed() {
    let needs = |arguments: &[&str]| {
        stdout(
            &faultless(arguments)
                .env("FAULTLESS_PLAN", "1")
                .output()
                .unwrap(),
        )
    };
    assert_eq!(
        needs(&["run", "--", "ebizzy"]),
        "needs: qemu kernel workloads\n"
    );
    assert_eq!(needs(&["run"]), "needs: qemu? kernel? workloads?\n");
    assert_eq!(
        needs(&["run", "--machine", "soft", "--", "ebizzy"]),
        "needs:\n"
    );
    assert_eq!(needs(&["bench", "find_100k_ns"]), "needs:\n");
    assert_eq!(
        needs(&["bench", "shared_lines_per_fault"]),
        "needs: recorder\n"
    );
}
