//! The operations that a program can request on its memory: one file for each.
//!
//! Arguments and errors are Linux's, by number. An operation checks, prepares what can fail, and then does what
//! cannot.

mod access;
mod attributes;
mod brk;
mod clear_refs;
mod control;
mod create;
mod exit;
mod fork;
mod inspect;
mod khugepaged;
pub mod madvise;
mod maps;
mod mincore;
pub mod mlock;
pub mod mmap;
mod mprotect;
pub mod mremap;
mod mseal;
mod msync;
mod munmap;
mod pagemap;
mod pooled;
mod populate;
mod rss;
mod swap_off;
mod usage;
mod userfault;

pub use clear_refs::AgingMode;
pub use khugepaged::HugeScan;
pub use madvise::advice;
pub use maps::{MappedFile, MapsEntry};
pub use mlock::{lock_all_flags, lock_flags};
pub use mmap::{Opened, OpenedDevice, flags};
pub use mremap::remap_flags;
pub use pagemap::PageState;
pub use rss::Rss;
pub use usage::{Share, Usage};
pub use userfault::{Filled, Forked};

use faultless_paging::Protection;

/// `PROT_READ`.
pub const PROT_READ: u32 = 1;
/// `PROT_WRITE`.
pub const PROT_WRITE: u32 = 2;
/// `PROT_EXEC`.
pub const PROT_EXEC: u32 = 4;

/// Returns the protection for `PROT_*` bits; other bits are ignored.
pub(crate) fn protection(prot: u32) -> Protection {
    Protection {
        read: prot & PROT_READ != 0,
        write: prot & PROT_WRITE != 0,
        execute: prot & PROT_EXEC != 0,
    }
}
