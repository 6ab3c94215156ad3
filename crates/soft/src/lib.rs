//! The soft machine: Faultless on the host, at native speed, without privileges.
//!
//! A CPU is a host thread with a software TLB that walks the same page tables
//! as x86-64 hardware would, sets accessed and dirty bits, takes faults, and
//! answers shootdowns. Programs are Rust closures that load and store through
//! their CPU ([`SoftCpu`]).
//!
//! * `arena`: physical memory, a piece of the host's.
//! * [`Soft`]: the machine as the core sees it.
//! * [`SoftCpu`]: a running CPU as a program sees it; `bytes`: its accesses in bulk;
//!   `pause`: leaving it to another thread.
//! * `tlb`: what a CPU remembers of translations.
//! * `shootdown`: how others make it forget.
//!
//! With [`Options::check`], every TLB hit is checked against the tables
//! (invariant 5): a translation that the tables no longer give is a bug.

mod arena;
mod bytes;
mod cpu;
mod host;
mod machine;
mod pause;
mod shootdown;
mod tlb;

pub use arena::Arena;
pub use cpu::{SoftCpu, Trap};
pub use machine::{Options, Soft, SoftMemory, SoftSpace};
