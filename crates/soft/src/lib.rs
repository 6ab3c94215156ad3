//! The soft machine: Faultless on the host, at native speed, without privileges.
//!
//! ```
//! use faultless_mm::{PROT_READ, PROT_WRITE, Policy, flags};
//! use faultless_soft::{Options, Soft, SoftCpu};
//!
//! let memory = Soft::start(Options::default())?;
//! let space = SoftCpu::attend(memory, 0, || Soft::space(memory, Policy::Speculative)).unwrap();
//! SoftCpu::run(&space, 0, |cpu| {
//!     let how = flags::PRIVATE | flags::ANONYMOUS;
//!     let at = space.mmap(0, 4096, PROT_READ | PROT_WRITE, how).unwrap();
//!     // The first store faults; the fault maps a zeroed page.
//!     cpu.store(at, 7).unwrap();
//!     assert_eq!(cpu.load(at), Ok(7));
//! });
//! SoftCpu::attend(memory, 0, || space.destroy());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A CPU is a host thread with a software TLB. It walks the same page tables as x86-64 hardware would, sets
//! accessed and dirty bits, takes faults, and answers shootdowns. Programs are Rust closures that load and
//! store through their CPU ([`SoftCpu`]).
//!
//! Where to look:
//!
//! * `arena`: physical memory, a range of the host's.
//! * [`Soft`]: the machine as the core sees it.
//! * [`SoftCpu`]: a running CPU as a program sees it; `bytes`: its accesses in bulk; `pause`: handing it to
//!   another thread.
//! * `tlb`: a CPU's cached translations.
//! * [`SoftVcpu`]: a CPU that runs a guest.
//! * `shootdown`: flush requests from other CPUs.
//! * `swap`: the machine under a swap device of `faultless-swap`.
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
mod swap;
mod tlb;
mod vcpu;

pub use arena::Arena;
pub use cpu::{SoftCpu, Trap};
pub use machine::{Atomics, Entries, Options, Soft, SoftMemory, SoftSpace};
pub use vcpu::{Exit, SoftGuest, SoftVcpu};
