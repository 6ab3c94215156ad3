//! What page faults have in common on all architectures: into the memory core, and what its answer means.

use core::sync::atomic::Ordering;

use linux_raw_sys::general as linux;

use super::{percpu, shootdown, uaccess};
use crate::memory::{Access, Outcome, SegvCode, USER_END};
use crate::process;

/// Outcomes of a page fault, for the entry code and the slow path.
pub const RESOLVED: u32 = 0;
pub const MAP_ERROR: u32 = 1;
pub const ACCESS_ERROR: u32 = 2;
pub const NO_MEMORY: u32 = 3;
pub const BUS_ERROR: u32 = 4;
/// Refused by the key of execute-only memory.
pub const CODE_ERROR: u32 = 5;
/// Refused by the key of all other memory, as the program has set it.
pub const KEY_ERROR: u32 = 6;
/// The page was poisoned by the handler of a userfaultfd.
pub const POISONED: u32 = 7;
/// A signal came before the handler of a userfaultfd. Never the result for a program, which just goes on.
pub const INTERRUPTED: u32 = 8;

/// Resolves a fault at an address.
#[inline]
pub fn resolve(address: u64, access: Access, by_kernel: bool) -> u32 {
    if address >= USER_END {
        return MAP_ERROR;
    }
    let outcome = match by_kernel {
        true => process::space().fault_by_kernel(address, access),
        false => process::space().fault(address, access),
    };
    match outcome {
        Outcome::Resolved => RESOLVED,
        Outcome::Segv(SegvCode::MapErr) => MAP_ERROR,
        Outcome::Segv(SegvCode::AccErr) => ACCESS_ERROR,
        Outcome::Segv(SegvCode::KeyErr) => CODE_ERROR,
        Outcome::Bus => BUS_ERROR,
        Outcome::OutOfMemory => NO_MEMORY,
        Outcome::Poisoned => POISONED,
        // The signal is delivered on the way out; then the program tries again.
        Outcome::Interrupted if !by_kernel => RESOLVED,
        Outcome::Interrupted => INTERRUPTED,
    }
}

/// The signal and its code for a fault of user mode that was not resolved, but for want of memory.
pub fn signal_of(outcome: u32) -> (u32, u32) {
    match outcome {
        MAP_ERROR => (linux::SIGSEGV, linux::SEGV_MAPERR),
        BUS_ERROR => (linux::SIGBUS, linux::BUS_ADRERR),
        POISONED => (linux::SIGBUS, linux::BUS_MCEERR_AR),
        CODE_ERROR | KEY_ERROR => (linux::SIGSEGV, linux::SEGV_PKUERR),
        _ => (linux::SIGSEGV, linux::SEGV_ACCERR),
    }
}

/// Handles a fault of the kernel's instruction at `pc`, which `resolve` resolves. Returns where the kernel goes on;
/// `None`: no access to user memory is there.
#[inline]
pub fn in_kernel(pc: u64, resolve: impl FnOnce() -> u32) -> Option<u64> {
    let fixup = uaccess::fixup(pc)?;
    if percpu::this().no_fault.load(Ordering::Relaxed) {
        return Some(fixup);
    }
    let next = match resolve() {
        RESOLVED => pc,
        NO_MEMORY => {
            process::oom::fault_found_none();
            match process::current().is_ending() {
                true => fixup,
                false => pc,
            }
        }
        _ => fixup,
    };
    // The access continues, perhaps after a sleep and on another CPU.
    shootdown::uses_user();
    Some(next)
}
