//! The programs of `tests/tests/linux.rs`: one prints what it has inherited, others leave processes
//! behind.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::exit;

use faultless_tests::linux;

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("show") => show(&arguments[0]),
        Some("again") => again(),
        Some("leave") => leave(),
        Some("stay") => stay(),
        _ => exit(2),
    }
}

/// Prints what the process has inherited.
fn show(name: &str) {
    println!("name {name}");
    println!("environment {:?}", std::env::vars_os().collect::<Vec<_>>());
    println!("folder {:?}", std::env::current_dir());
    // SAFETY: asks about descriptors and this process, and opens a file that stays open.
    unsafe {
        let open = (0..2000).filter(|&number| libc::fcntl(number, libc::F_GETFD) != -1);
        println!("descriptors {:?}", open.collect::<Vec<_>>());
        println!("umask {:o}", libc::umask(0));
        println!("personality {:x}", libc::personality(0xffff_ffff));
        let own = libc::getpid();
        println!(
            "session {}",
            libc::getsid(0) == own && libc::getpgrp() == own
        );
        let terminal = libc::open(c"/dev/tty".as_ptr(), libc::O_RDWR);
        println!("terminal {}", terminal != -1);
        for (name, resource) in [("stack", libc::RLIMIT_STACK), ("core", libc::RLIMIT_CORE)] {
            let mut limit = std::mem::zeroed::<libc::rlimit>();
            libc::getrlimit(resource, &raw mut limit);
            println!("{name} {}", limit.rlim_cur);
        }
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    for line in status.lines() {
        // Rust's own runtime ignores SIGPIPE.
        if line.starts_with("SigBlk") || line.starts_with("SigIgn") {
            println!("{line}");
        }
    }
}

/// Runs this program as tests do, to show what a program inherits then.
fn again() {
    let ended = linux::finish(
        linux::command(Path::new("/proc/self/exe"))
            .arg0("test")
            .arg("show"),
    );
    print!("{}{}", ended.stdout, ended.stderr);
}

/// Leaves two processes that never end, one in a group of its own.
fn leave() {
    for number in 0..2 {
        // SAFETY: there is one thread; the children do nothing else.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                loop {
                    libc::pause();
                }
            }
            if number == 1 {
                libc::setpgid(child, child);
            }
            println!("{child}");
        }
    }
    exit(7);
}

/// Never ends, and leaves a child that does not either.
fn stay() {
    // SAFETY: there is one thread, and both go on alike.
    unsafe {
        println!("{}", libc::getpid());
        libc::fork();
        println!("{}", libc::getpid());
        loop {
            libc::pause();
        }
    }
}
