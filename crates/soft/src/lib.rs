//! The soft machine: Faultless on the host, at native speed, without privileges.
//!
//! A CPU is a host thread with a software TLB. It walks the same page tables as x86-64 hardware would, sets
//! accessed and dirty bits, takes faults, and answers shootdowns. Programs are Rust closures that load and
//! store through their CPU ([`SoftCpu`]).
//!
//! * `arena`: physical memory, a range of the host's.
//! * [`Soft`]: the machine as the core sees it.
//! * [`SoftCpu`]: a running CPU as a program sees it; `bytes`: its accesses in bulk; `pause`: handing it to
//!   another thread.
//! * `tlb`: a CPU's cached translations.
//! * `shootdown`: flush requests from other CPUs.
//!
//! With [`Options::check`], every TLB hit is checked against the tables (invariant 5): a translation that the
//! tables no longer contain is a bug.

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
