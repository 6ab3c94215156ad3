//! The workloads of `workloads/c`, for the soft machine: the same names, options and printed
//! lines, and the same work.
//!
//! [`run()`] starts a machine, gives it a process with one address space, and runs one workload
//! there to its end. The folders `ebizzy`, `first_write`, `guard` and the file `page_fault1` are
//! the workloads, to be read beside their C twins; `system` is what a kernel and a C library are
//! to those; `command_line` reads options.
//!
//! What a machine without instructions makes of them:
//!
//! * Every access to a workload's data is one of a soft CPU: a load, a store, or bytes in pieces
//!   of at most a page. Counters, barriers and flags that the C programs keep in their own
//!   variables are the host's memory here, and take no faults.
//! * A workload's thread is a host thread. Thread `n` runs on CPU `n` modulo the number of CPUs,
//!   the main thread on CPU 0, and threads of one CPU take turns (see `system::slot`). No thread
//!   moves to another CPU.
//! * An access that the mappings do not allow is a SIGSEGV: the value of the trap goes to whoever
//!   stands for the handler, or the process dies of signal 11. Without a frame for a page it dies
//!   of signal 9, and says so.
//! * `malloc` gives pages of `mmap` from 128 KiB on, and less out of the heap, as musl's does.
//! * `user` and `sys` of ebizzy are this process' times on the host. A fault on the soft machine
//!   runs in user mode there; `sys` is what the host's kernel spends on waiting and memory.
//! * `page_fault1 -N` has nothing to do: there are no huge pages.
//!
//! Left out of `guard`, because the soft machine has no registers, signal frames or machine code:
//! registers across a handler, the context a handler sees, the signal mask, jumps out of a
//! handler, a fault in the handler, the alternate stack, and an access across a page's end (loads
//! and stores are aligned), and `mmap` of a bad file. Addresses that are none at all, SI_KERNEL, are not told from those of
//! the kernel. The program's own image, its stack and the kernel's accesses are there: mappings
//! made as `execve` makes them, and copies that answer EFAULT instead of a signal.
#![forbid(unsafe_code)]

mod command_line;
mod ebizzy;
mod first_write;
mod guard;
mod page_fault1;
mod report;
mod run;
mod system;

pub use faultless_mm::Policy;
pub use report::{Error, Options, Report};
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
        main: ebizzy::main,
    },
    Workload {
        name: NAMES[1],
        main: first_write::main,
    },
    Workload {
        name: NAMES[2],
        main: guard::main,
    },
    Workload {
        name: NAMES[3],
        main: page_fault1::main,
    },
];

/// The names of the workloads, in order.
pub const NAMES: [&str; 4] = ["ebizzy", "first_write", "guard", "page_fault1"];
