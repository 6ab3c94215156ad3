//! Debian's `busybox-static`, unmodified, in the kernel: it prints what it prints on the host, from the same
//! files and the same standard input. `./x test boot` installs it and runs these tests.

mod common;

use std::fs::File;
use std::io::{Read as _, Write as _, pipe};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use faultless_tests::linux;

const BUSYBOX: &str = "/bin/busybox";

/// Files to work on: text, numbers, bytes, a link, a folder.
fn make_files(folder: &Path) {
    let words: String = (0..3000)
        .map(|number| format!("{} word{}\n", number * 7919 % 3000, number % 13))
        .collect();
    std::fs::write(folder.join("words"), words).unwrap();
    let bytes: Vec<u8> = (0..1_000_000_u32)
        .map(|n| (n.wrapping_mul(n) >> 7) as u8)
        .collect();
    std::fs::write(folder.join("bytes"), bytes).unwrap();
    std::fs::create_dir_all(folder.join("sub/deep")).unwrap();
    std::fs::write(folder.join("sub/deep/f"), "deep\n").unwrap();
    std::os::unix::fs::symlink("sub/deep/f", folder.join("link")).unwrap();
}

fn on_the_host(folder: &Path, arguments: &[&str], input: Stdio) -> linux::Ended {
    let mut command = linux::command(Path::new(BUSYBOX));
    command.args(arguments).current_dir(folder).stdin(input);
    linux::finish(&mut command)
}

/// Runs an applet by busybox's shell, with `folder` at `/work`.
fn in_the_kernel(folder: &Path, arguments: &[&str], input: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faultless"));
    command.args(["run", "--verify", "--timeout", "120", "--file"]);
    command.arg(format!("{}:/work", folder.display()));
    command.args(["--", BUSYBOX]);
    command.args(["sh", "-c", "cd /work; exec /bin/busybox \"$@\"", "sh"]);
    command.args(arguments).stdin(input).output().unwrap()
}

fn assert_same(folder: &Path, arguments: &[&str], input: &dyn Fn() -> Stdio) {
    let linux = on_the_host(folder, arguments, input());
    let here = in_the_kernel(folder, arguments, input());
    let said = common::stderr(&here);
    assert_eq!(here.status.code(), linux.exit, "{arguments:?} {said}");
    assert_eq!(common::stdout(&here), linux.stdout, "{arguments:?} {said}");
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn applets_print_what_they_print_on_the_host() {
    let folder = tempfile::tempdir().unwrap();
    make_files(folder.path());
    for arguments in [
        &["cat", "link", "words"][..],
        &["cat", "none"],
        &["ls", "-a"],
        &["ls", "sub", "link"],
        &["sha256sum", "bytes", "words"],
        &["sort", "-n", "words"],
        &["wc", "words", "bytes"],
        &["head", "-n", "3", "words"],
        &["grep", "-c", "word7", "words"],
        &["sed", "-n", "s/word1$/one/p", "words"],
        &["stat", "-c", "%n %a %F", "words", "link", "sub"],
        &[
            "awk",
            "{ n[$2] += $1 } END { for (w in n) s += n[w]; print s, length(n) }",
            "words",
        ],
        &[
            "dd",
            "if=bytes",
            "bs=1000",
            "skip=5",
            "count=2",
            "status=none",
        ],
        &["find", "sub"],
        &[
            "sh",
            "-c",
            "cp -r sub s2 && mv s2 s3 && rm -r s3/deep && ls s3; rm -r s3",
        ],
        &[
            "sh",
            "-c",
            "sort words | uniq | wc -l; (cd sub; pwd | sed 's/.*sub/sub/')",
        ],
        &[
            "sh",
            "-c",
            "echo a > new; cat new >> new2; echo b >> new2; cat new2; rm new new2",
        ],
    ] {
        assert_same(folder.path(), arguments, &Stdio::null);
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn standard_input_is_a_file_or_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    make_files(folder.path());
    let bytes = folder.path().join("bytes");
    assert_same(folder.path(), &["sha256sum"], &|| {
        File::open(&bytes).unwrap().into()
    });
    let pipe = || {
        let mut cat = Command::new("cat");
        cat.arg(&bytes).stdout(Stdio::piped());
        cat.spawn().unwrap().stdout.unwrap().into()
    };
    assert_same(folder.path(), &["sha256sum"], &pipe);
    assert_same(folder.path(), &["head", "-c", "10"], &pipe);
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn unread_input_is_left_alone() {
    // While the program runs, the writer neither writes nor closes the pipe.
    let (reader, mut writer) = std::io::pipe().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let output = in_the_kernel(
        folder.path(),
        &["echo", "idle"],
        reader.try_clone().unwrap().into(),
    );
    assert_eq!(
        common::stdout(&output),
        "idle\n",
        "{}",
        common::stderr(&output)
    );
    writer.write_all(b"left").unwrap();
    drop(writer);
    assert_eq!(std::io::read_to_string(reader).unwrap(), "left");
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_shell_script_says_what_it_says_on_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let script = root().join("tests/programs/shell.sh");
    std::fs::copy(script, folder.path().join("script")).unwrap();
    assert_same(folder.path(), &["sh", "script"], &Stdio::null);
}

/// Awk and sort, each with many megabytes.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn programs_that_need_much_memory() {
    let folder = tempfile::tempdir().unwrap();
    let awk = "BEGIN { for (i = 0; i < 300000; i++) a[i] = sprintf(\"%020d\", i * 7919 % 300007); \
               for (i in a) n += length(a[i]); print n, a[1], a[299999] }";
    assert_same(folder.path(), &["awk", awk], &Stdio::null);
    let numbers: String = (0..200_000_u64)
        .map(|n| format!("{}\n", n * 1_000_003 % 1_000_033))
        .collect();
    std::fs::write(folder.path().join("numbers"), numbers).unwrap();
    let sort = "sort -n numbers | sha256sum; sort numbers | sha256sum";
    assert_same(folder.path(), &["sh", "-c", sort], &Stdio::null);
}

/// Both streams go to one pipe: the order of writes is kept, and no line is split.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn standard_output_and_error_keep_their_order() {
    let script =
        "i=0; while [ $i -lt 300 ]; do echo output $i; echo error $i >&2; i=$((i+1)); done";
    let (mut reader, writer) = pipe().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_faultless"));
    command.args(["run", "--timeout", "120", "--", BUSYBOX, "sh", "-c", script]);
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone().unwrap())
        .stderr(writer);
    let mut child = command.spawn().unwrap();
    // Closes this process's writing ends of the pipe.
    drop(command);
    let mut all = String::new();
    reader.read_to_string(&mut all).unwrap();
    assert!(child.wait().unwrap().success(), "{all}");
    let seen: Vec<_> = all
        .lines()
        .filter(|line| !line.starts_with("faultless: "))
        .collect();
    let expected: Vec<_> = (0..300)
        .flat_map(|number| [format!("output {number}"), format!("error {number}")])
        .collect();
    assert_eq!(seen, expected);
}
