//! The Faultless kernel: as much of an operating system as it takes to run unmodified Linux programs on the
//! Faultless memory core, on several CPUs.
//!
//! Principles:
//! - Kernel code runs with interrupts off and is never preempted; it sleeps only where it says so.
//!   Every wait loop answers TLB shootdowns (`arch::relax`).
//! - A fault and a system call save nine registers and take no lock on the way to their handler.
//! - Nothing a program does may panic the kernel; data that a program can make large is allocated fallibly.
//! - Architecture-specific code is only in `arch`; the port of the memory core is in `memory`.
//!
//! Reading order: `start` (what happens at boot), `arch::entry` and `arch::trap` (the ways in),
//! `sched`, `syscall`, `exec`.

#![no_std]
#![no_main]
// Old system calls and guests: only on x86-64. The build for it finds what is really unused.
#![cfg_attr(target_arch = "aarch64", allow(dead_code))]

extern crate alloc;

mod arch;
mod console;
mod errno;
mod exec;
mod files;
mod futex;
mod heap;
#[cfg_attr(not(target_arch = "x86_64"), path = "kvm/absent.rs")]
mod kvm;
mod memory;
mod panic;
mod process;
mod ptrace;
mod report;
mod sched;
mod shared;
mod signal;
mod start;
mod swap;
mod sync;
mod syscall;
mod trace;
mod verify;
