//! Guest memory in which faults wait for no lock.
//!
//! A *guest* is a virtual machine's memory: slots of guest-physical addresses over the memory of a host process, and
//! second-level page tables that hardware, or a software walk, uses below the guest's own. A guest's access that these tables
//! do not allow is a fault of the host ([`Guest::fault`]).
//!
//! * **The entry says it all.** A fault that only has to restore access, after dirty logging or access tracking has taken it
//!   away, is decided from the guest's entry alone and repaired by one compare-and-swap (`fault/fast.rs`). No lock, no look
//!   at the memory slots, no line written but the entry's. The dirty log is what the entries say, too: a page that may be
//!   written is one that was.
//! * **The host's entry is the sequence.** Other faults take the page from the host's page tables: the guest claims its entry,
//!   looks at the host's again, and publishes. What the host unmaps, pages out, copies or write-protects reaches the
//!   guest before the host's flush ([`faultless_mm::HostPages`]).
//!
//! # Guide for authors of hypervisors
//!
//! 1. Implement [`GuestMachine`] for your [`Machine`](faultless_mm::Machine): the format of second-level entries ([`Npt`],
//!    [`Ept`], [`Stage2`], or your own), and a flush of what vCPUs have cached.
//! 2. [`OwnedGuest::new`] makes a guest over an address space. Its [`Guest::root`] is the table for hardware (nCR3, EPTP, VTTBR).
//! 3. [`Guest::set_slot`] says which memory the guest has; it means what KVM's `KVM_SET_USER_MEMORY_REGION` means.
//! 4. On a nested page fault, call [`Guest::fault_of_vcpu`] and act on the [`GuestOutcome`]: enter the guest again, emulate the access to
//!    a device, or report an error.
//! 5. For dirty logging, set [`SlotFlags::LOG_DIRTY_PAGES`], then [`Guest::get_dirty_log`] and [`Guest::clear_dirty_log`].
//!    What your own device models write, they mark with [`Guest::mark_dirty`].
//! 6. Or give each vCPU a ring of the pages that it has written: [`Guest::use_rings`], a [`DirtyRing`] in each [`GuestFault`],
//!    [`DirtyRing::is_nearly_full`] before each entry; [`DirtyRing::harvest`], then [`Guest::begin_reset`].
//! 7. Call [`OwnedGuest::destroy`] when no vCPU runs any more, before the space ends.
//!
//! `examples/vmm` is a whole virtual machine monitor in 300 lines: a guest's memory with the traits of rust-vmm's `vm-memory`,
//! dirty bitmap included, and a migration that copies dirty pages while a vCPU writes.
#![cfg_attr(not(any(loom, shuttle, record)), no_std)]

mod age;
mod fault;
mod flush;
mod format;
mod guest;
mod host;
mod huge;
mod log;
mod mmu;
mod slots;
mod tables;
mod verify;
mod zap;

pub use fault::{GuestFault, GuestOutcome, Repair};
pub use format::{Ept, Npt, SecondLevel, Stage2};
pub use guest::{Guest, GuestMachine, HostSpace, Options, OwnedGuest};
pub use log::reset::RingReset;
pub use log::ring::{DIRTY, DirtyPage, DirtyRing, RESET, RingFull, SlotPage};
pub use slots::slot::{Slot, SlotFlags};
