//! The I/O APIC, as far as one device on the ISA bus needs it.

use core::sync::atomic::{AtomicU64, Ordering};

use super::percpu;
use crate::memory::boot_frames::BootFrames;

/// Where its registers are mapped; 0 if there is none.
static WINDOW: AtomicU64 = AtomicU64::new(0);

const DATA: u64 = 0x10;
const REDIRECTION: u32 = 0x10;

fn write(register: u32, value: u32) {
    let window = WINDOW.load(Ordering::Relaxed);
    // SAFETY: The window is mapped and uncached; the first register selects what the other one is.
    unsafe {
        (window as *mut u32).write_volatile(register);
        ((window + DATA) as *mut u32).write_volatile(value);
    }
}

/// Maps its registers; boot CPU only.
pub fn map(physical: u64, frames: &mut BootFrames) {
    let window = super::paging::map_device(physical, frames);
    WINDOW.store(window as u64, Ordering::Relaxed);
}

/// Routes a line of the ISA bus to the boot CPU with a vector; returns whether there is a controller.
pub fn route(line: u32, vector: u8) -> bool {
    if WINDOW.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let target = percpu::of(0).hardware_id.load(Ordering::Relaxed) as u32;
    write(REDIRECTION + 2 * line + 1, target << 24);
    // Fixed delivery on the rising edge, as on the ISA bus.
    write(REDIRECTION + 2 * line, u32::from(vector));
    true
}
