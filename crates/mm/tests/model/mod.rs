//! The machine under the models: a few frames, a CPU per thread, and TLBs that
//! notice what must not happen. The same for loom and for shuttle.
//!
//! * `machine`: the machine itself.
//! * `processor`: a CPU that loads and stores through its TLB.
//! * `world`: a machine and one address space, made anew for every execution.
//!
//! What only the machine knows (free frames, TLBs, what pages hold) is behind
//! plain mutexes. They are held for a moment and never while a thread can be
//! switched, so that each use is one indivisible step, as hardware's are.
#![allow(dead_code, unused_imports)]

#[cfg(loom)]
#[path = "../../../sync/tests/model/explore.rs"]
mod explore;
mod machine;
mod processor;
#[cfg(shuttle)]
mod schedules;
mod world;

#[cfg(loom)]
pub use explore::explore;
pub use machine::{Model, set_cpu, with_lazy_tlbs, with_marks};
pub use processor::Processor;
#[cfg(shuttle)]
pub use schedules::{explore, explore_under, fails};
pub use world::{Space, World};

use faultless_mm::{PROT_READ, PROT_WRITE, flags};

/// `PROT_READ | PROT_WRITE`.
pub const RW: u32 = PROT_READ | PROT_WRITE;
/// Anonymous, private, at this very address.
pub const FIXED: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
/// Bytes of a page.
pub const PAGE: u64 = faultless_mm::PAGE_SIZE;
