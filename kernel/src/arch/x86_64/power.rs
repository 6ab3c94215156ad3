//! Turns the machine off, and stops CPUs.

use core::sync::atomic::{AtomicBool, Ordering};

use x86_64::instructions::port::Port;

use crate::report::{self, End};

/// Ends the machine: by QEMU's debug-exit device, else by the ACPI ports of its two chip sets,
/// else by a halt.
pub fn off() -> ! {
    // SAFETY: The machine's end is what the caller wants; where a port is absent nothing happens.
    unsafe {
        Port::<u32>::new(0xf4).write(0);
        Port::<u16>::new(0x604).write(0x2000);
        Port::<u16>::new(0xb004).write(0x2000);
    }
    loop {
        // SAFETY: Interrupts are off: this CPU does nothing more.
        unsafe { core::arch::asm!("cli", "hlt") };
    }
}

/// Whether a CPU stops all others; only that CPU continues.
static STOPPING: AtomicBool = AtomicBool::new(false);

/// Handles an NMI: another CPU stops this one, or an NMI from outside (QEMU's `nmi`) requests the report.
///
/// Runs with whatever GS base the CPU had, so it must not ask which CPU it is on.
pub extern "C" fn nmi() -> ! {
    if !STOPPING.swap(true, Ordering::AcqRel) {
        report::finish(End::Nothing, Some(format_args!("stopped from outside")));
    }
    loop {
        // SAFETY: This CPU does nothing more.
        unsafe { core::arch::asm!("cli", "hlt") };
    }
}

/// Stops all other CPUs where they are.
pub fn stop_others() {
    STOPPING.store(true, Ordering::Release);
    let this = super::percpu::cpu_number();
    for cpu in (0..super::percpu::count()).filter(|&cpu| cpu != this) {
        super::apic::stop(cpu);
    }
}
