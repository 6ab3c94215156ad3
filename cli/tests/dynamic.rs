//! Programs that need an interpreter and libraries: the command's answer about them before anything starts.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{faultless, stderr, stdout};

/// Compiles C source text.
fn compile(folder: &Path, text: &str, name: &str, arguments: &[&str]) -> PathBuf {
    let source = folder.join(format!("{name}.c"));
    fs::write(&source, text).unwrap();
    let output = folder.join(name);
    let mut compiler = Command::new("cc");
    compiler
        .current_dir(folder)
        .arg("-o")
        .args([&output, &source]);
    assert!(compiler.args(arguments).status().unwrap().success());
    output
}

/// A program that needs `liba.so`, which needs `libb.so`; both are beside the program.
fn program(folder: &Path) -> PathBuf {
    let shared = ["-shared", "-fPIC", "-L.", "-Wl,-rpath,$ORIGIN"];
    compile(folder, "int b(void) { return 7; }", "libb.so", &shared);
    let with_b = [&shared[..], &["-lb"]].concat();
    let text = "int b(void); int a(void) { return b(); }";
    compile(folder, text, "liba.so", &with_b);
    let with_a = [
        "-L.",
        "-la",
        "-Wl,-rpath,$ORIGIN",
        "-Wl,--allow-shlib-undefined",
    ];
    let text = "int a(void); int main(void) { return a(); }";
    compile(folder, text, "program", &with_a)
}

/// The command's answer: what it needs, or why it refuses.
fn plan(arguments: &[&str], program: &Path) -> Output {
    let mut command = faultless(arguments);
    command
        .env("FAULTLESS_PLAN", "1")
        .env_remove("LD_LIBRARY_PATH");
    command.arg("--").arg(program).output().unwrap()
}

#[track_caller]
fn assert_accepted(output: &Output) {
    assert_eq!(stdout(output).lines().count(), 1, "{}", stderr(output));
    assert!(
        stdout(output).starts_with("needs: qemu kernel"),
        "{}",
        stdout(output)
    );
}

#[track_caller]
fn assert_refused(output: &Output, parts: &[&str]) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for part in parts {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn every_command_takes_them() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    for arguments in [
        &["run"][..],
        &["stat"],
        &["trace", "-o", "/dev/null"],
        &["compare", "--linux", "6.12"],
    ] {
        assert_accepted(&plan(arguments, &program));
    }
}

#[test]
fn a_program_of_the_host_may_be_named_only() {
    let output = plan(&["run"], Path::new("env"));
    assert_accepted(&output);
    assert_refused(
        &plan(&["run"], Path::new("no-such-program")),
        &["none in PATH"],
    );
}

#[test]
fn scripts_are_programs_of_their_interpreter() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    fs::write(&script, "#!/bin/sh\necho hello\n").unwrap();
    assert_accepted(&plan(&["run"], &script));
    fs::write(&script, "#!/bin/no-shell\necho hello\n").unwrap();
    assert_refused(
        &plan(&["run"], &script),
        &["script: its interpreter /bin/no-shell is not there"],
    );
}

#[test]
fn a_missing_library_is_named_with_its_user() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let b = folder.path().join("libb.so");
    let content = fs::read(&b).unwrap();
    fs::remove_file(&b).unwrap();
    let beside = folder.path().to_str().unwrap();
    let needs = format!("{beside}/liba.so needs libb.so, which is not there (looked in {beside}, ");
    let refused = plan(&["run"], &program);
    assert_refused(&refused, &[&needs, "/usr/lib"]);

    // It may be elsewhere, if the user's `LD_LIBRARY_PATH` names the folder or `--file` gives the library.
    fs::create_dir(folder.path().join("else")).unwrap();
    fs::write(folder.path().join("else/libb.so"), &content).unwrap();
    let mut command = faultless(&["run", "--"]);
    command.arg(&program).current_dir(folder.path());
    command
        .env("FAULTLESS_PLAN", "1")
        .env("LD_LIBRARY_PATH", "else");
    assert_accepted(&command.output().unwrap());
    let given = format!("{beside}/else/libb.so:{beside}/libb.so");
    assert_accepted(&plan(&["run", "--file", &given], &program));
}

#[test]
fn a_library_that_will_not_do_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let b = folder.path().join("libb.so");
    let whole = fs::read(&b).unwrap();
    let mut narrow = whole.clone();
    narrow[4] = 1;
    fs::write(&b, &narrow).unwrap();
    let refused = plan(&["run"], &program);
    assert_refused(&refused, &["liba.so needs libb.so", "libb.so is 32-bit"]);
    fs::write(&b, &whole[..200]).unwrap();
    assert_refused(&plan(&["run"], &program), &["libb.so: truncated"]);
    fs::write(&b, "INPUT(other)").unwrap();
    assert_refused(&plan(&["run"], &program), &["libb.so: not an ELF file"]);
}

#[test]
fn a_library_larger_than_the_machine_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let b = fs::File::options()
        .write(true)
        .open(folder.path().join("libb.so"));
    b.unwrap().set_len(100 << 20).unwrap();
    let refused = plan(&["run", "--memory", "64M"], &program);
    assert_refused(&refused, &["libb.so", "64M"]);
}
