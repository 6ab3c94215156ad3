//! The swap device that a run asks for.
//!
//! `swap=zram:BYTES` in the run file is compressed memory ([`faultless_swap::Compressed`]). It is there from the
//! first program on, and stays.

use alloc::boxed::Box;
use alloc::vec::Vec;

use faultless_mm::{Frame, PAGE_SIZE, SlotCache};
use faultless_swap::{Compressed, Scratch, SwapMachine};
use faultless_sync::Cpu;

use crate::arch::percpu;
use crate::memory::machine::{self, Kernel};
use crate::memory::reclaim;
use crate::sync::Once;

static DEVICE: Once<&'static Compressed<Kernel>> = Once::new();

impl SwapMachine for Kernel {
    type Frames = <Kernel as faultless_mm::Machine>::Frames;

    fn frames(&self) -> &Self::Frames {
        faultless_mm::Machine::frames(self)
    }

    fn cpu(&self) -> Cpu {
        faultless_mm::Machine::cpu(self)
    }
}

/// Begins to use compressed memory of so many bytes before compression.
///
/// # Errors
/// A line that says what is wrong.
pub fn begin(bytes: u64) -> Result<(), &'static str> {
    const SHORT: &str = "there is too little memory for the swap device";
    let slots = bytes / PAGE_SIZE;
    if slots == 0 {
        return Ok(());
    }
    let cpus = percpu::count() as usize;
    let mut scratch = Vec::<Scratch>::new();
    scratch.try_reserve_exact(cpus).map_err(|_| SHORT)?;
    for place in scratch.spare_capacity_mut().iter_mut().take(cpus) {
        // In place: the stack is smaller than a scratch memory.
        Scratch::place(place);
    }
    // SAFETY: so many were made just now.
    unsafe { scratch.set_len(cpus) };
    let mut caches = Vec::new();
    caches.try_reserve_exact(cpus).map_err(|_| SHORT)?;
    caches.resize_with(cpus, SlotCache::default);
    let device = Compressed::new(Kernel, scratch.leak(), slots).map_err(|_| SHORT)?;
    let device: &'static _ = Box::leak(Box::new(device));
    machine::memory()
        .swap_on(device, caches.leak())
        .map_err(|_| SHORT)?;
    DEVICE.set(device);
    reclaim::begin().map_err(|_| SHORT)
}

/// Calls `visit` with every frame of the device, for the verifier.
pub fn for_each_frame(visit: &mut dyn FnMut(Frame)) {
    if let Some(device) = DEVICE.try_get() {
        device.for_each_frame(visit);
    }
}

/// Returns the bytes of all swap, and those that are free.
pub fn sizes() -> (u64, u64) {
    let (slots, used) = machine::memory().swap_usage();
    (slots * PAGE_SIZE, slots.saturating_sub(used) * PAGE_SIZE)
}
