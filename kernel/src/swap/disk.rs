//! A disk that pages are swapped out to.
//!
//! The first page of a disk has its header, as on Linux; the others are slots.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use faultless_mm::{Frame, PAGE_SIZE, SlotCache, SwapDevice};
use faultless_swap::{Compressed, RamDisk, Scratch};

use super::header;
use super::virtio::VirtioDisk;
use crate::arch::percpu;
use crate::errno::Errno;
use crate::memory::machine::{self, Kernel};

/// The kinds of disks, by their names in the run file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Compressed memory (`/dev/zram0`).
    Zram,
    /// Memory without compression (`/dev/ram0`).
    Ram,
    /// A file of the host (`/dev/vda`).
    Virtio,
}

impl Kind {
    /// The name of its node in `/dev`.
    pub const fn node(self) -> &'static str {
        match self {
            Self::Zram => "zram0",
            Self::Ram => "ram0",
            Self::Virtio => "vda",
        }
    }

    /// Its major number; those of zram and virtio-blk are not fixed on Linux.
    pub fn major(self) -> u32 {
        match self {
            Self::Zram => 252,
            Self::Ram => 1,
            Self::Virtio => 254,
        }
    }

    /// Looks up a kind by its name in the run file.
    pub fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"zram" => Some(Self::Zram),
            b"ram" => Some(Self::Ram),
            b"disk" => Some(Self::Virtio),
            _ => None,
        }
    }
}

/// What has the pages.
enum Body {
    Zram(&'static Compressed<Kernel>),
    Ram(&'static RamDisk<Kernel>),
    Virtio(&'static VirtioDisk),
}

/// A disk.
pub struct Disk {
    kind: Kind,
    body: Body,
    /// Each CPU's part of its slots, while it is in use.
    caches: Vec<SlotCache>,
    /// The core's number of it, plus 1; 0 before it is first used.
    number: AtomicU32,
}

impl Disk {
    /// Makes a disk of so many bytes, for as long as the kernel runs.
    ///
    /// # Errors
    /// A line that says what is wrong.
    pub fn make(kind: Kind, bytes: u64) -> Result<&'static Self, &'static str> {
        const SHORT: &str = "there is too little memory for the swap device";
        let slots = (bytes / PAGE_SIZE).saturating_sub(1);
        let cpus = percpu::count() as usize;
        let body = match kind {
            Kind::Zram => {
                let scratch = scratch(cpus).ok_or(SHORT)?;
                let device = Compressed::new(Kernel, scratch, slots);
                Body::Zram(keep(device.map_err(|_| SHORT)?))
            }
            Kind::Ram => Body::Ram(keep(RamDisk::new(Kernel, slots).map_err(|_| SHORT)?)),
            Kind::Virtio => Body::Virtio(keep(VirtioDisk::open()?)),
        };
        let mut caches = Vec::new();
        caches.try_reserve_exact(cpus).map_err(|_| SHORT)?;
        caches.resize_with(cpus, SlotCache::default);
        Ok(keep(Self {
            kind,
            body,
            caches,
            number: AtomicU32::new(0),
        }))
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Checks the header of a disk that comes from outside. It has to say that all of the disk is swap.
    ///
    /// # Errors
    /// A line that says why it is no swap area.
    pub fn check_header(&self) -> Result<(), &'static str> {
        let Body::Virtio(disk) = &self.body else {
            return Ok(());
        };
        let header = disk.header().map_err(|_| "the disk cannot be read")?;
        match header::slots(&header, disk.pages())? == disk.slots() {
            true => Ok(()),
            false => Err("the swap area is smaller than its disk"),
        }
    }

    /// Begins to swap to it.
    ///
    /// # Errors
    /// As `swapon`.
    pub fn turn_on(&'static self, priority: Option<u16>) -> Result<(), Errno> {
        let number = machine::memory().swap_on(self.device(), &self.caches, priority)?;
        self.number.store(number + 1, Ordering::Relaxed);
        Ok(())
    }

    /// The core's number of it, if it was ever used.
    pub fn number(&self) -> Option<u32> {
        self.number.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Whether it is in use.
    pub fn is_on(&self) -> bool {
        let mut is_on = false;
        machine::memory().for_each_swap(&mut |usage| is_on |= Some(usage.number) == self.number());
        is_on
    }

    /// The disk as the core uses it.
    fn device(&'static self) -> &'static dyn SwapDevice {
        match self.body {
            Body::Zram(device) => device,
            Body::Ram(device) => device,
            Body::Virtio(device) => device,
        }
    }

    /// Calls `visit` with every frame of the disk, for the verifier.
    pub fn for_each_frame(&self, visit: &mut dyn FnMut(Frame)) {
        match &self.body {
            Body::Zram(device) => device.for_each_frame(visit),
            Body::Ram(device) => device.for_each_frame(visit),
            Body::Virtio(_) => {}
        }
    }
}

/// Keeps a value as long as the kernel runs.
fn keep<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// Makes a scratch memory for each CPU.
fn scratch(cpus: usize) -> Option<&'static [Scratch]> {
    let mut scratch = Vec::<Scratch>::new();
    scratch.try_reserve_exact(cpus).ok()?;
    for place in scratch.spare_capacity_mut().iter_mut().take(cpus) {
        // In place: the stack is smaller than a scratch memory.
        Scratch::place(place);
    }
    // SAFETY: so many were made just now.
    unsafe { scratch.set_len(cpus) };
    Some(scratch.leak())
}
