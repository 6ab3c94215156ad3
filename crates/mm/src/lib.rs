//! Address spaces in which page faults wait for nobody.
//!
//! (The porting guide follows here.)
#![cfg_attr(not(any(loom, shuttle, record)), no_std)]

mod errno;
mod fault;
mod grow;
mod hold;
mod machine;
mod mapping;
mod memory;
mod ops;
mod policy;
mod prepare;
mod range;
mod space;
pub mod tree;
mod verify;
mod zap;

pub use errno::Errno;
pub use fault::{Outcome, SegvCode};
pub use machine::Machine;
pub use mapping::{Attributes, Flags, Mapping};
pub use memory::{Memory, PerCpu};
pub use ops::{MapsEntry, PROT_EXEC, PROT_READ, PROT_WRITE, advice, flags};
pub use policy::{Policy, UnknownPolicy};
pub use space::{AddressSpace, Layout};
pub use verify::{Census, Violation};

pub use faultless_frames::{Descriptor, FrameCache, FrameSource, Frames, NoMemory};
pub use faultless_paging::{
    Access, EntryFormat, Flush, Frame, PAGE_SIZE, PhysicalMemory, Protection, SpaceId, Tlb, X86_64,
};
pub use faultless_sync::reclaim::Participant;
pub use faultless_sync::{Cpu, CpuSet, MAX_CPUS, Wait};
pub use faultless_trace::{Counter, Counters, Event, Kind, Ring};
