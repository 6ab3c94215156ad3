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
//! *Writes*: this CPU's line, twice an entry; the VM's generation, by flushes.

use core::sync::atomic::{AtomicU64, Ordering};

use super::state::State;
use crate::arch::percpu::MAX_CPUS;
use crate::arch::{apic, idt, percpu, tlb};

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
}

impl Flusher {
    pub const fn new() -> Self {
        Self {
            generation: AtomicU64::new(1),
        }
    }

    /// How often it was flushed.
    pub fn flushes(&self) -> u64 {
        self.generation.load(Ordering::Relaxed) - 1
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
            apic::interrupt(cpu, idt::FLUSH);
            let mut turn = 0u32;
            while there.count.load(Ordering::Acquire) == count {
                turn = turn.saturating_add(1);
                tlb::relax_for(turn);
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
    // SAFETY: A VM's flusher outlives its guest memory, for which alone this is called.
    let flusher = unsafe { &*core::ptr::with_exposed_provenance::<Flusher>(tag as usize) };
    flusher.flush();
}
