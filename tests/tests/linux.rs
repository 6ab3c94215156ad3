//! Programs that run on the host for comparison with the kernel leave no process behind, and inherit nothing from
//! the test process.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use faultless_tests::linux::{Ended, command, finish, finish_within};

const PROGRAM: &str = env!("CARGO_BIN_EXE_host-surroundings");

fn program(what: &str) -> Command {
    let mut command = command(Path::new(PROGRAM));
    command.arg(what);
    command
}

/// Asserts that the processes that the program named are gone.
fn assert_no_process_is_left(ended: &Ended, count: usize) {
    let named: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(named.len(), count, "{ended:?}");
    for process in named {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let is_over = stat.is_empty() || stat.contains(") Z ") || stat.contains(") X ");
        assert!(is_over, "{stat}");
    }
}

#[test]
fn children_left_behind_delay_no_exit() {
    let ended = finish(&mut program("leave"));
    assert_eq!((ended.exit, ended.signal), (Some(7), None), "{ended:?}");
    assert_no_process_is_left(&ended, 2);
}

#[test]
fn what_does_not_end_is_killed_with_its_children() {
    let ended = finish_within(&mut program("stay"), Duration::from_secs(2));
    assert!(ended.was_late);
    assert_eq!((ended.exit, ended.signal), (None, Some(9)), "{ended:?}");
    // The program has said its number before and after its fork.
    assert_no_process_is_left(&ended, 3);
}

/// Sets everything that a program inherits to unusual values. Runs between fork and exec.
fn spoil() -> std::io::Result<()> {
    // SAFETY: each call is about this process, with valid arguments.
    unsafe {
        for number in 100..200 {
            libc::dup2(0, number);
        }
        libc::umask(0o077);
        libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTSTP] {
            libc::signal(signal, libc::SIG_IGN);
        }
        // The C library keeps this one for itself and would refuse.
        let ignore = [libc::SIG_IGN as u64, 0, 0, 0];
        libc::syscall(libc::SYS_rt_sigaction, 32, &raw const ignore, 0, 8);
        let mut all = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
        for resource in [libc::RLIMIT_STACK, libc::RLIMIT_CORE] {
            let mut limit = std::mem::zeroed::<libc::rlimit>();
            libc::getrlimit(resource, &raw mut limit);
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(resource, &raw const limit);
        }
    }
    Ok(())
}

#[test]
fn a_program_inherits_nothing() {
    let mut again = Command::new(PROGRAM);
    again.arg("again").env("LANG", "de_DE").current_dir("/tmp");
    // SAFETY: system calls only.
    unsafe { again.pre_exec(spoil) };
    let output = again.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let expected = "\
name test
environment []
folder Ok(\"/\")
descriptors [0, 1, 2]
umask 22
personality 0
session true
terminal false
stack 8388608
core 0
SigBlk:\t0000000000000000
SigIgn:\t0000000000001000
";
    assert_eq!(said, expected, "{output:?}");
}
