//! Programs with an interpreter and libraries in the kernel: they print what they print on the host. The
//! command packs their dependencies. `./x test boot` installs Debian's `sqlite3` and runs these tests.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::programs;
use faultless_tests::linux;

/// The variables that `./x run` gives.
const VARIABLES: [(&str, &str); 2] = [("PATH", "/bin:/usr/bin"), ("HOME", "/")];

fn command(options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faultless"));
    command.args(["run", "--verify", "--timeout", "170"]);
    // Cargo sets it, for itself.
    command
        .args(options)
        .arg("--")
        .env_remove("LD_LIBRARY_PATH");
    command
}

/// Runs a program on the host and in the kernel, with a file as its standard input or none, and compares.
#[track_caller]
fn assert_same(options: &[&str], program: &Path, arguments: &[&str], input: Option<&Path>) {
    let stdin = || input.map_or_else(Stdio::null, |file| File::open(file).unwrap().into());
    let mut host = linux::command(program);
    host.args(arguments).envs(VARIABLES).stdin(stdin());
    let host = linux::finish(&mut host);
    // Seen if the test fails.
    eprint!("{}", host.stderr);
    let mut here = command(options);
    here.arg(program).args(arguments).stdin(stdin());
    let here = here.output().unwrap();
    assert_ends_so(&here, host.exit, &host.stdout);
}

#[track_caller]
fn assert_ends_so(output: &Output, status: Option<i32>, stdout: &str) {
    let said = common::stderr(output);
    assert_eq!(output.status.code(), status, "{said}");
    assert_eq!(common::stdout(output), stdout, "{said}");
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn programs_of_both_libraries() {
    let folder = tempfile::tempdir().unwrap();
    for (_, compiler, arguments) in programs::SHARED {
        for name in ["hello", "processes", "execs"] {
            let program = programs::build(name, compiler, arguments, folder.path());
            assert_same(&[], &program, &[], None);
        }
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn glibc_finds_what_it_loads_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let program = programs::build("unwinds", "gcc", &[], folder.path());
    assert_same(&[], &program, &[], None);
}

/// The program is started through a link. It has a library beside it, one in a folder of `LD_LIBRARY_PATH`,
/// and one that `--file` gives.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn libraries_of_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["app/bin", "app/lib", "else", "given"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    let compile = |output: &str, text: &str, arguments: &[&str]| {
        let source = at("source.c");
        fs::write(&source, text).unwrap();
        let mut compiler = Command::new("gcc");
        compiler
            .arg("-o")
            .args([&at(output), &source])
            .args(arguments);
        compiler.current_dir(folder.path());
        assert!(compiler.status().unwrap().success(), "{output}");
    };
    let shared = ["-shared", "-fPIC"];
    compile("given/libc3.so", "int c(void) { return 3; }", &shared);
    compile("else/libb2.so", "int b(void) { return 20; }", &shared);
    compile("app/lib/liba1.so", "int a(void) { return 100; }", &shared);
    let text = "#include <stdio.h>\n\
                int a(void), b(void), c(void);\n\
                int main(void) { printf(\"%d\\n\", a() + b() + c()); return 4; }";
    let libraries = ["-Lapp/lib", "-Lelse", "-Lgiven", "-la1", "-lb2", "-lc3"];
    let rpath = ["-Wl,-rpath,$ORIGIN/../lib:/opt/given"];
    compile("app/bin/program", text, &[&libraries[..], &rpath].concat());
    symlink("app/bin/program", at("link")).unwrap();

    let given = format!("{}:/opt/given/", at("given/libc3.so").display());
    let mut here = command(&["--file", &given]);
    here.arg("./link").current_dir(folder.path());
    here.env("LD_LIBRARY_PATH", "else");
    assert_ends_so(&here.output().unwrap(), Some(4), "123\n");
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn bash_says_what_it_says_on_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    fs::copy(programs::root().join("tests/programs/bash.sh"), &script).unwrap();
    let bash = Path::new("/bin/bash");
    // From its standard input, so that nothing but the shell is packed.
    assert_same(&[], bash, &[], Some(&script));
    let line = "echo \"$0 $# $1\"; exit 6";
    assert_same(&[], bash, &["-c", line, "name", "first", "second"], None);
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_shell_with_programs() {
    let tools = [
        "awk", "cat", "cmp", "grep", "head", "ls", "rm", "sed", "seq", "sh", "sleep", "sort",
        "tee", "tr", "wc", "yes",
    ];
    let mut options = Vec::new();
    let paths: Vec<_> = tools
        .iter()
        .map(|tool| format!("/usr/bin/{tool}"))
        .collect();
    for path in &paths {
        options.extend(["--file", path]);
    }
    // Debian's awk is a link to a link.
    let script = programs::root().join("tests/programs/shell.sh");
    assert_same(&options, Path::new("/bin/bash"), &["-s"], Some(&script));
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_script_brings_its_interpreter() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    for first in ["#!/bin/bash", "#!/usr/bin/env bash"] {
        fs::write(
            &script,
            format!("{first}\necho \"${{BASH##*/}} $1\"\nexit 8\n"),
        )
        .unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        assert_same(&[], &script, &["argument"], None);
    }
}

fn sqlite() -> PathBuf {
    "/usr/bin/sqlite3".into()
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn sqlite3_says_what_it_says_on_the_host() {
    assert_same(
        &[],
        &sqlite(),
        &[":memory:", "select 1, sqlite_version()"],
        None,
    );
    assert_same(&[], &sqlite(), &[":memory:", "select nothing"], None);
    let script = programs::root().join("tests/programs/tables.sql");
    assert_same(&[], &sqlite(), &[":memory:"], Some(&script));
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("database");
    fs::write(&database, "").unwrap();
    let given = database.to_str().unwrap();
    let before = fs::metadata(&database).unwrap().len();
    // On the host the program fills the same file, so our kernel has to run first.
    let mut here = command(&["--file", given]);
    here.arg(sqlite())
        .arg(given)
        .stdin(File::open(&script).unwrap());
    let here = here.output().unwrap();
    assert_eq!(fs::metadata(&database).unwrap().len(), before);
    let mut host = linux::command(&sqlite());
    host.arg(given)
        .envs(VARIABLES)
        .stdin(File::open(&script).unwrap());
    let host = linux::finish(&mut host);
    assert_eq!(host.exit, Some(0), "{host:?}");
    assert_ends_so(&here, host.exit, &host.stdout);
}

/// A tree with everything in it, as from a container's image.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_program_of_a_tree_has_its_libraries_there() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    fs::create_dir_all(at("usr/bin")).unwrap();
    fs::create_dir_all(at("usr/lib64")).unwrap();
    symlink("usr/bin", at("bin")).unwrap();
    symlink("usr/lib64", at("lib64")).unwrap();
    let program = programs::build("hello", "gcc", &[], root.path());
    fs::rename(program, at("usr/bin/hello")).unwrap();
    let library = |name: &str| {
        let folders = ["/lib64", "/lib/x86_64-linux-gnu"].map(Path::new);
        let found = folders.map(|folder| folder.join(name));
        let found = found.iter().find(|path| path.exists());
        fs::copy(found.unwrap(), at("lib64").join(name)).unwrap();
    };
    library("ld-linux-x86-64.so.2");
    let tree = root.path().to_str().unwrap();
    let refused = common::run(&["run", "--root", tree, "--", "hello"]);
    let said = common::stderr(&refused);
    assert!(
        said.contains("needs libc.so.6, which is not there"),
        "{said}"
    );
    library("libc.so.6");
    let mut here = command(&["--root", tree, "--env", "LD_LIBRARY_PATH=/lib64"]);
    here.arg("hello");
    assert_ends_so(&here.output().unwrap(), Some(0), "hello 1\n");
}
