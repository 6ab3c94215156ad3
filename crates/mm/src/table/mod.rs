//! Work on the page tables of one address space, range by range.
//!
//! Each file is one operation on the entries of a range: take pages away, free empty tables,
//! discard, move, freeze for fork, clear soft-dirty bits. None changes a mapping.

pub(crate) mod discard;
pub(crate) mod free;
pub(crate) mod freeze;
pub(crate) mod move_ptes;
pub(crate) mod rss;
pub(crate) mod soft_dirty;
pub(crate) mod taken;
pub(crate) mod zap;
