//! Turns the machine off, and stops CPUs, by the firmware's PSCI.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use smccc::{Hvc, Smc, psci};

use super::paging::physical_to_virtual;
use super::start_info::Devices;
use super::{debugcon, gic};
use crate::report::{self, End};

/// Whether the firmware is called by `smc`, not `hvc`.
static BY_SMC: AtomicBool = AtomicBool::new(false);
/// The registers of the GPIO of the power key, and its interrupt; 0 if there is none.
static KEY: AtomicU64 = AtomicU64::new(0);
static KEY_INTERRUPT: AtomicU32 = AtomicU32::new(0);

/// The key's line at its PL061.
const LINE: u32 = 1 << 3;
const EVENT: u64 = 0x40c;
const ENABLE: u64 = 0x410;

/// Sets how the firmware is called; boot CPU only.
pub fn set_conduit(by_smc: bool) {
    BY_SMC.store(by_smc, Ordering::Relaxed);
}

/// Lets the power key interrupt: a press requests the report. Boot CPU only.
pub fn find_key(devices: &Devices) {
    let Some((registers, interrupt)) = devices.power_key else {
        return;
    };
    let at = physical_to_virtual(registers);
    // SAFETY: The device tree names the device's registers, which the direct map has as device memory.
    unsafe {
        at.add(EVENT as usize).cast::<u32>().write_volatile(LINE);
        at.add(ENABLE as usize).cast::<u32>().write_volatile(LINE);
    }
    KEY.store(at as u64, Ordering::Relaxed);
    KEY_INTERRUPT.store(interrupt, Ordering::Relaxed);
    gic::route(interrupt);
}

/// Whether an interrupt is the power key's.
pub fn is_key(number: u32) -> bool {
    KEY.load(Ordering::Relaxed) != 0 && number == KEY_INTERRUPT.load(Ordering::Relaxed)
}

/// Handles the power key: the command wants the report.
pub fn stopped_from_outside() -> ! {
    report::finish(End::Nothing, Some(format_args!("stopped from outside")))
}

/// Starts a CPU at this physical address. Returns whether the firmware agrees.
pub fn start_cpu(hardware_id: u64, entry: u64, argument: u64) -> bool {
    let result = match BY_SMC.load(Ordering::Relaxed) {
        true => psci::cpu_on::<Smc>(hardware_id, entry, argument),
        false => psci::cpu_on::<Hvc>(hardware_id, entry, argument),
    };
    result.is_ok()
}

/// Ends the machine.
pub fn off() -> ! {
    debugcon::drain();
    let _ = match BY_SMC.load(Ordering::Relaxed) {
        true => psci::system_off::<Smc>(),
        false => psci::system_off::<Hvc>(),
    };
    halt()
}

/// This CPU does nothing more. Its interrupts are off.
pub fn halt() -> ! {
    loop {
        // SAFETY: It waits.
        unsafe { core::arch::asm!("wfi") };
    }
}

/// Stops all other CPUs. There is no interrupt that the kernel does not mask, so there is no way to: those in user
/// mode go on until the machine is off.
pub fn stop_others() {}
