//! Reclaims frames: pages that were not used for some time, lazily freed pages, and compaction.
//!
//! * `balance`: when and by what frames are reclaimed.
//! * `sweep`: finds pages that were not used.
//! * `advised`: finds pages that a program wants to leave.
//! * `page_out`: takes pages out of an address space, and writes them to a swap device.
//! * `shared`: the same for a page that several entries show.
//! * `object`: finds pages of objects that were not used.
//! * `lazyfree`: pages that the program does not need.
//! * `compact`: makes a range of frames free. `blocks`: makes a block for a huge page free.

pub(crate) mod advised;
mod balance;
pub(crate) mod blocks;
pub(crate) mod compact;
pub(crate) mod lazyfree;
mod object;
pub(crate) mod page_out;
mod shared;
mod sweep;
