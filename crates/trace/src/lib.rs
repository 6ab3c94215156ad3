//! What Faultless tells about itself: counters and events.
//!
//! Counters are always on. Each CPU has its own copy on lines of its own, so
//! that counting shares nothing; a reader adds the copies up. The names are the
//! ones that users of speculative page faults know from perf and
//! `/proc/vmstat`, and mean what `docs/counters.md` says.
//!
//! Events go into per-CPU rings and cost one predictable branch while they are off.
#![cfg_attr(not(any(loom, shuttle, record)), no_std)]

mod counter;
mod event;

pub use counter::{Counter, Counters};
pub use event::{Event, Kind, Ring};
