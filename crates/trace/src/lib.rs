//! Instrumentation of a memory subsystem: counters, events and latencies, for each CPU.
//!
//! ```
//! use faultless_trace::{Counter, Counters};
//!
//! let cpus = [Counters::new(), Counters::new()];
//! cpus[0].count(Counter::Faults);
//! cpus[1].add(Counter::Faults, 2);
//! let total: u64 = cpus.iter().map(|cpu| cpu.get(Counter::Faults)).sum();
//! assert_eq!((Counter::Faults.name(), total), ("faults", 3));
//! ```
//!
//! Counters are always on. Each CPU has its own copy on lines of its own, so that counting shares nothing; a
//! reader adds the copies up. The names are those that users of speculative page faults know from perf and
//! `/proc/vmstat`. `docs/counters.md` defines them.
//!
//! A CPU's [`Tracer`] records events ([`Event`]) and latency histograms ([`Latencies`]) once a run asks for
//! them, in memory that the run provides. Until then they cost one predictable branch; without the feature
//! `events`, nothing. `docs/events.md` lists them.
#![cfg_attr(not(any(loom, shuttle, record)), no_std)]

mod counter;
mod detour;
mod event;
mod kind;
mod latency;
mod ring;
mod tracer;

pub use counter::{Counter, Counters};
pub use detour::Detours;
pub use event::{Event, FastPageFault, Switch, WORDS};
pub use kind::{How, Kind, Mask, Reason};
pub use latency::{Latencies, Latency, Measure};
pub use ring::{HEADER, Ring};
pub use tracer::Tracer;
