//! The disks that pages are swapped out to.
//!
//! `swap=KIND:BYTES` in the run file makes a disk, and its use begins before the first program. Programs end it and
//! begin it again by `swapoff` and `swapon` ([`call`]).
//!
//! * `call`: the system calls.
//! * `disk`: the kinds of disks.
//! * `header`: what `mkswap` writes.
//! * `virtio`: a disk of the host.

pub mod call;
mod disk;
mod header;
pub mod virtio;

use core::sync::atomic::{AtomicU32, Ordering};

use faultless_mm::{Frame, PAGE_SIZE, SwapUsage};
use faultless_swap::SwapMachine;
use faultless_sync::Cpu;

use crate::memory::machine::{self, Kernel};
use crate::memory::reclaim;
use crate::sync::Once;
use disk::Disk;
pub use disk::Kind;

/// The machine's disk.
static DISK: Once<&'static Disk> = Once::new();

/// The disk that a run asks for.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub kind: Kind,
    pub bytes: u64,
}

impl SwapMachine for Kernel {
    type Frames = <Kernel as faultless_mm::Machine>::Frames;

    fn frames(&self) -> &Self::Frames {
        faultless_mm::Machine::frames(self)
    }

    fn cpu(&self) -> Cpu {
        faultless_mm::Machine::cpu(self)
    }
}

/// Makes the disk that the run asks for, and begins to use it.
///
/// # Errors
/// A line that says what is wrong.
pub fn begin(wanted: Option<Wanted>) -> Result<(), &'static str> {
    let Some(Wanted { kind, bytes }) = wanted else {
        return Ok(());
    };
    let disk = Disk::make(kind, bytes)?;
    disk.check_header()?;
    disk.turn_on(None)
        .map_err(|_| "there is too little memory for the slots of the swap device")?;
    DISK.set(disk);
    reclaim::begin().map_err(|_| "there is too little memory for the thread that reclaims")
}

/// The machine's disk, if it is of this kind.
fn disk_of(kind: Kind) -> Option<&'static Disk> {
    DISK.try_get().copied().filter(|disk| disk.kind() == kind)
}

/// Whether the machine has a disk of a kind.
pub fn has(kind: Kind) -> bool {
    disk_of(kind).is_some()
}

/// `vm.page-cluster`: so many pages, a power of two, are read at once from a slow disk. It begins as 0, as beside Linux in
/// `./x compare`, and not as 3, Linux's default.
static CLUSTER: AtomicU32 = AtomicU32::new(0);

pub fn cluster() -> u32 {
    CLUSTER.load(Ordering::Relaxed)
}

pub fn set_cluster(cluster: u32) {
    CLUSTER.store(cluster, Ordering::Relaxed);
    machine::memory().set_read_ahead((1 << cluster.min(16)) - 1);
}

/// Calls `visit` with each disk in use.
pub fn for_each(visit: &mut dyn FnMut(Kind, SwapUsage)) {
    machine::memory().for_each_swap(&mut |usage| {
        if let Some(disk) = DISK.try_get() {
            visit(disk.kind(), usage);
        }
    });
}

/// Calls `visit` with every frame of the disks, for the verifier.
pub fn for_each_frame(visit: &mut dyn FnMut(Frame)) {
    if let Some(disk) = DISK.try_get() {
        disk.for_each_frame(visit);
    }
}

/// Returns the bytes of all swap, and those that are free.
pub fn sizes() -> (u64, u64) {
    let (slots, used) = machine::memory().swap_usage();
    (slots * PAGE_SIZE, slots.saturating_sub(used) * PAGE_SIZE)
}
