//! All kinds of operations, one file for each family.
//!
//! A written program contains the names of its kinds, so their order may change.

mod access;
mod brk;
mod faults;
mod file;
mod fork;
mod limit;
mod lock;
mod madvise;
mod membarrier;
mod mincore;
mod mmap;
mod mprotect;
mod mremap;
mod msync;
mod munmap;
mod process_vm;
mod seal;
mod soft_dirty;
mod swap;

pub use limit::limited;
pub use madvise::pages_out;
#[cfg(feature = "soft")]
pub use madvise::{COLLAPSE, POPULATE_WRITE, is_guard, is_needed_soon};

use crate::kind::Kind;

/// Every kind there is.
pub static KINDS: &[&Kind] = &[
    &access::LOAD,
    &access::STORE,
    &mmap::MMAP,
    &munmap::MUNMAP,
    &mprotect::MPROTECT,
    &madvise::MADVISE,
    &mremap::MREMAP,
    &mincore::MINCORE,
    &brk::BRK,
    &file::FTRUNCATE,
    &file::FALLOCATE,
    &file::PREAD,
    &file::PWRITE,
    &lock::MLOCK,
    &lock::MLOCK2,
    &lock::MUNLOCK,
    &lock::MLOCKALL,
    &lock::MUNLOCKALL,
    &madvise::PROCESS_MADVISE,
    &msync::MSYNC,
    &seal::MSEAL,
    &limit::LIMIT,
    &faults::FAULTS,
    &process_vm::READ,
    &process_vm::WRITE,
    &soft_dirty::SOFT_DIRTY,
    &membarrier::MEMBARRIER,
    &swap::SWAP,
    &fork::FORK,
    &fork::NOTHING,
];
