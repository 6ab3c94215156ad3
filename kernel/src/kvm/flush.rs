//! Flushes of guest translations: when one returns, no vCPU of the VM uses a translation that it loaded before.
//!
//! A VM has a generation, which each flush increments. A CPU that enters a guest says so (an odd count of its
//! own, and the VM), passes a full fence, and then reads the generation; it flushes if that differs from the one
//! that it entered with last. A flusher increments the generation, which is a full fence, and then looks at the
//! CPUs: one that is in a guest of the VM is interrupted and waited for, until its count changes. So either the
//! CPU sees the new generation, or the flusher sees the CPU.
//!
//! All guests use one address-space identifier, so a CPU also flushes when it enters another vCPU than last, or
//! one that was elsewhere meanwhile.
//!
//! A change of the program's memory that has begun may still flush a VM that is gone. So what is flushed is used again for other
//! VMs, and is never freed; a flush too many does no harm.
//!
//! *Writes*: this CPU's line, twice an entry; the VM's generation, by flushes.

use alloc::alloc::{Layout, alloc};
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use super::state::State;
use crate::arch::interrupts::{self, Kind};
use crate::arch::percpu::MAX_CPUS;
use crate::arch::{percpu, shootdown};
use crate::errno::{ENOMEM, Errno};
use crate::sync::SpinLock;

/// A CPU's part; written by that CPU only.
#[repr(align(128))]
struct Here {
    /// Odd while the CPU is in a guest.
    count: AtomicU64,
    /// The VM of that guest, by its flusher's address.
    vm: AtomicU64,
    /// The vCPU that ran here last, and the generation of its VM that it was entered with.
    vcpu: AtomicU64,
    generation: AtomicU64,
}

static CPUS: [Here; MAX_CPUS] = [const {
    Here {
        count: AtomicU64::new(0),
        vm: AtomicU64::new(0),
        vcpu: AtomicU64::new(0),
        generation: AtomicU64::new(0),
    }
}; MAX_CPUS];

/// A VM's part. Its address is the tag of the VM's guest memory.
#[repr(align(64))]
pub struct Flusher {
    generation: AtomicU64,
    /// The generation in which the VM began.
    first: AtomicU64,
    /// While no VM has it: the next one like it, by its address, or 0.
    next: AtomicU64,
}

/// The first of those that no VM has, by its address, or 0.
static UNUSED: SpinLock<u64> = SpinLock::new(0);

/// A flusher that a VM has.
pub struct OwnedFlusher(&'static Flusher);

impl OwnedFlusher {
    /// # Errors
    /// `ENOMEM`.
    pub fn new() -> Result<Self, Errno> {
        let mut unused = UNUSED.lock();
        let flusher = match *unused {
            0 => Flusher::allocate()?,
            first => at(first),
        };
        *unused = flusher.next.load(Ordering::Relaxed);
        let generation = flusher.generation.load(Ordering::Relaxed);
        flusher.first.store(generation, Ordering::Relaxed);
        Ok(Self(flusher))
    }
}

impl Deref for OwnedFlusher {
    type Target = Flusher;

    #[inline]
    fn deref(&self) -> &Flusher {
        self.0
    }
}

impl Drop for OwnedFlusher {
    fn drop(&mut self) {
        let mut unused = UNUSED.lock();
        self.0.next.store(*unused, Ordering::Relaxed);
        *unused = self.0.tag();
    }
}

/// The flusher with this tag.
fn at(tag: u64) -> &'static Flusher {
    // SAFETY: Flushers are never freed.
    unsafe { &*core::ptr::with_exposed_provenance::<Flusher>(tag as usize) }
}

impl Flusher {
    fn allocate() -> Result<&'static Self, Errno> {
        // SAFETY: The size is not 0.
        let place = unsafe { alloc(Layout::new::<Self>()) };
        let place = NonNull::new(place.cast::<Self>()).ok_or(ENOMEM)?;
        // SAFETY: Just allocated for this, and never freed.
        Ok(unsafe {
            place.write(Self {
                generation: AtomicU64::new(1),
                first: AtomicU64::new(1),
                next: AtomicU64::new(0),
            });
            place.as_ref()
        })
    }

    /// How often the VM was flushed.
    pub fn flushes(&self) -> u64 {
        self.generation.load(Ordering::Relaxed) - self.first.load(Ordering::Relaxed)
    }

    /// The tag of the VM's guest memory.
    pub fn tag(&self) -> u64 {
        core::ptr::from_ref(self).expose_provenance() as u64
    }

    /// Says that this CPU enters a guest of the VM, and returns whether it has to flush. Interrupts are off.
    #[inline]
    pub fn enter(&self, state: &mut State) -> bool {
        let number = percpu::cpu_number();
        let here = &CPUS[number as usize];
        here.vm.store(self.tag(), Ordering::Relaxed);
        // A full fence; partner: `flush`. Only this CPU writes the count.
        here.count.swap(
            here.count.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::SeqCst,
        );
        let generation = self.generation.load(Ordering::SeqCst);
        let stays = here.vcpu.load(Ordering::Relaxed) == state.number
            && state.last_cpu == number
            && here.generation.load(Ordering::Relaxed) == generation;
        if !stays {
            here.vcpu.store(state.number, Ordering::Relaxed);
            here.generation.store(generation, Ordering::Relaxed);
            state.last_cpu = number;
        }
        !stays
    }

    /// Flushes; see [`faultless_tdp::GuestMachine::flush_guest`].
    fn flush(&self) {
        // A full fence; partner: `enter`.
        self.generation.fetch_add(1, Ordering::SeqCst);
        let this = percpu::cpu_number();
        let tag = self.tag();
        for cpu in (0..percpu::count()).filter(|&cpu| cpu != this) {
            let there = &CPUS[cpu as usize];
            let count = there.count.load(Ordering::SeqCst);
            if count & 1 == 0 || there.vm.load(Ordering::Relaxed) != tag {
                continue;
            }
            // Any interrupt makes a guest leave.
            interrupts::send(cpu, Kind::Flush);
            let mut turn = 0u32;
            while there.count.load(Ordering::Acquire) == count {
                turn = turn.saturating_add(1);
                shootdown::relax_for(turn);
            }
        }
    }
}

/// Says that this CPU has left the guest.
#[inline]
pub fn left() {
    let here = &CPUS[percpu::cpu_number() as usize];
    // Release: a flusher that sees this sees that the guest's accesses are over.
    here.count.store(
        here.count.load(Ordering::Relaxed).wrapping_add(1),
        Ordering::Release,
    );
}

/// Flushes the guest with this tag.
pub fn flush(tag: u64) {
    at(tag).flush();
}
