//! The workloads of `workloads/c`, for the soft machine: the same names, options and output
//! lines, and the same work.
//!
//! [`run()`] starts a machine, creates a process with one address space, and runs one workload
//! in it to its end. The folders `ebizzy`, `first_write`, `guard` and the files `forceswap`, `page_fault1` are
//! the workloads, to be read beside their C twins; `guests` has twins of Linux's KVM tests; `system` replaces the kernel
//! and the C library
//! for them; `command_line` parses options.
//!
//! Differences on a machine without instructions:
//!
//! * Every access to a workload's data is a soft CPU's: a load, a store, or bytes in pieces
//!   of at most a page. Counters, barriers and flags that the C programs keep in their own
//!   variables are in the host's memory here, and cause no faults.
//! * A workload's thread is a host thread. Thread `n` runs on CPU `n` modulo the number of CPUs,
//!   the main thread on CPU 0, and threads of one CPU take turns (see `system::slot`). No thread
//!   migrates to another CPU.
//! * An access that the mappings do not allow is a SIGSEGV: the trap goes to the caller, which acts as
//!   the handler, or the process dies of signal 11. If there is no frame for a page, it dies
//!   of signal 9, with a message.
//! * `malloc` allocates with `mmap` from 128 KiB on, and smaller blocks from the heap, as musl's does.
//! * `user` and `sys` of ebizzy are this process's times on the host. A fault on the soft machine
//!   runs in user mode there; `sys` is the time of the host's kernel for waiting and memory.
//! * `page_fault1 -N` has no effect: there are no huge pages.
//! * `forceswap` times writes in nanoseconds, by the host's clock, instead of cycles.
//!
//! Left out of `guard`, because the soft machine has no registers, signal frames or machine code:
//! registers across a handler, the context that a handler gets, the signal mask, jumps out of a
//! handler, a fault in the handler, the alternate stack, an access across a page's end (loads
//! and stores are aligned), and `mmap` of a bad file. Non-canonical addresses (SI_KERNEL) are not
//! distinguished from those of the kernel. The program's own image, its stack and the kernel's accesses
//! are there: mappings as `execve` makes them, and copies that return EFAULT instead of a signal.
#![forbid(unsafe_code)]

mod command_line;
mod ebizzy;
mod first_write;
mod forceswap;
mod guard;
mod guests;
mod page_fault1;
mod report;
mod run;
mod swap;
mod system;

pub use faultless_mm::Policy;
pub use faultless_tdp::Options as GuestOptions;
pub use report::{Error, Options, Report, Swap};
pub use run::run;

use system::{Stop, Thread};

/// A workload: its name and its `main`.
struct Workload {
    name: &'static str,
    main: fn(&Thread<'_>, &[String]) -> Result<i32, Stop>,
}

const WORKLOADS: [Workload; NAMES.len()] = [
    Workload {
        name: NAMES[0],
        main: guests::access_tracking_perf_test::main,
    },
    Workload {
        name: NAMES[1],
        main: guests::dirty_log_perf_test::main,
    },
    Workload {
        name: NAMES[2],
        main: ebizzy::main,
    },
    Workload {
        name: NAMES[3],
        main: first_write::main,
    },
    Workload {
        name: NAMES[4],
        main: forceswap::main,
    },
    Workload {
        name: NAMES[5],
        main: guard::main,
    },
    Workload {
        name: NAMES[6],
        main: page_fault1::main,
    },
];

/// The names of the workloads, in order.
pub const NAMES: [&str; 7] = [
    "access_tracking_perf_test",
    "dirty_log_perf_test",
    "ebizzy",
    "first_write",
    "forceswap",
    "guard",
    "page_fault1",
];
