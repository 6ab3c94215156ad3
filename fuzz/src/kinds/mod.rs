//! All kinds of operations, one file for each family.
//!
//! A program that was written down names its kinds, so their order may change.

mod access;
mod brk;
mod fork;
mod madvise;
mod mincore;
mod mmap;
mod mprotect;
mod mremap;
mod munmap;

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
    &fork::FORK,
    &fork::NOTHING,
];
