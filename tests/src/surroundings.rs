//! The environment of a program that the tests run on the host's Linux: the same for every test run, and as close
//! as possible to that of the kernel's first process.
//!
//! A program inherits more than arguments: descriptors, limits (by which Linux chooses the layout
//! of the address space), ignored signals (`nohup`, many supervisors), blocked signals, a terminal,
//! a umask, a personality. Each of them has an effect that some test compares.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use libc::c_int;

/// The soft limits of the kernel's first process, each lowered to the host's hard limit.
const LIMITS: [(libc::__rlimit_resource_t, u64); 9] = [
    (libc::RLIMIT_STACK, 8 << 20),
    (libc::RLIMIT_NOFILE, 1024),
    (libc::RLIMIT_CORE, 0),
    (libc::RLIMIT_AS, libc::RLIM_INFINITY),
    (libc::RLIMIT_DATA, libc::RLIM_INFINITY),
    (libc::RLIMIT_FSIZE, libc::RLIM_INFINITY),
    (libc::RLIMIT_NPROC, libc::RLIM_INFINITY),
    (libc::RLIMIT_CPU, libc::RLIM_INFINITY),
    (libc::RLIMIT_MEMLOCK, 8 << 20),
];

const LAST_SIGNAL: c_int = 64;

/// The kernel's own `sigaction`: no handler, no flags, no mask.
static DEFAULT: [u64; 4] = [0; 4];

/// Gives `command` this environment, in a session of its own: no environment variables, `/` as its working
/// directory, no standard input, no other descriptors than the three standard ones.
pub fn fix(command: &mut Command) -> &mut Command {
    command.env_clear().current_dir("/").stdin(Stdio::null());
    // SAFETY: `settle` makes system calls only, so it may run between fork and exec.
    unsafe { command.pre_exec(settle) }
}

/// Runs in the child, before the program.
fn settle() -> io::Result<()> {
    // SAFETY: each call is about this process, with valid arguments.
    unsafe {
        // A session: no terminal, and no process group that another process can stop or kill.
        done(libc::setsid())?;
        libc::umask(0o022);
        done(libc::personality(0))?;
        for (resource, wanted) in LIMITS {
            let mut limit = std::mem::zeroed::<libc::rlimit>();
            done(libc::getrlimit(resource, &raw mut limit))?;
            limit.rlim_cur = wanted.min(limit.rlim_max);
            done(libc::setrlimit(resource, &raw const limit))?;
        }
        for signal in 1..=LAST_SIGNAL {
            // Not through the C library, which reserves two signals and would leave them ignored. For
            // SIGKILL and SIGSTOP the call returns an error.
            libc::syscall(libc::SYS_rt_sigaction, signal, &raw const DEFAULT, 0, 8);
        }
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        done(libc::sigemptyset(&raw mut none))?;
        done(libc::sigprocmask(
            libc::SIG_SETMASK,
            &raw const none,
            std::ptr::null_mut(),
        ))?;
        // Not closed here: a failed exec is reported through one of them.
        let close = libc::CLOSE_RANGE_CLOEXEC as c_int;
        done(libc::close_range(3, u32::MAX, close))
    }
}

fn done(result: c_int) -> io::Result<()> {
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
