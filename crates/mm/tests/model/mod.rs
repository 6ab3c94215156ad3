//! The simulated machine under the models: a few frames, one CPU per thread, and TLBs that detect errors.
//! Loom and shuttle share it.
//!
//! * `machine`: the machine itself.
//! * `processor`: a CPU that loads and stores through its TLB.
//! * `world`: a machine and one address space, made anew for every execution.
//!
//! State that only the machine knows (free frames, TLBs, page contents) is behind plain mutexes. No thread
//! switch happens while one is held, so each use is one indivisible step, as in hardware.
#![allow(dead_code, unused_imports)]

#[cfg(loom)]
#[path = "../../../sync/tests/model/explore.rs"]
mod explore;
mod machine;
mod processor;
#[cfg(shuttle)]
mod schedules;
mod swap;
mod world;

#[cfg(loom)]
pub use explore::explore;
#[cfg(loom)]
pub use machine::with_breaks;
pub use machine::{Model, Translation, set_cpu, with_lazy_tlbs, with_marks};
pub use processor::Processor;
#[cfg(shuttle)]
pub use schedules::{explore, explore_under, fails};
pub use swap::Store;
pub use world::{Space, World};

use faultless_mm::{PROT_READ, PROT_WRITE, flags};

/// `PROT_READ | PROT_WRITE`.
pub const RW: u32 = PROT_READ | PROT_WRITE;
/// Flags: anonymous, private, at exactly this address.
pub const FIXED: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
/// Bytes of a page.
pub const PAGE: u64 = faultless_mm::PAGE_SIZE;
