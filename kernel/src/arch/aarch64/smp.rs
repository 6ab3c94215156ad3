//! Starting the other CPUs, one after the other, by the firmware.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::boot::secondary_entry;
use super::sysreg::read_sysreg;
use super::{asid, features, gic, paging, percpu, power, time, tlb};

/// The hardware's number of a CPU, in MPIDR_EL1.
pub const AFFINITY: u64 = 0xff_00ff_ffff;

/// The stack and the kernel's root table of the CPU that starts; the boot code reads them.
#[unsafe(no_mangle)]
static secondary_stack: AtomicU64 = AtomicU64::new(0);
#[unsafe(no_mangle)]
static secondary_root: AtomicU64 = AtomicU64::new(0);

/// CPUs that have reported that they run.
static STARTED: AtomicU32 = AtomicU32::new(1);

/// Nanoseconds that a CPU may take to start.
const PATIENCE: u64 = 2_000_000_000;

/// Starts the CPU with this number of the hardware as number `number`, on this stack; returns whether it started.
pub fn start(number: u32, hardware_id: u64, stack: u64) -> bool {
    percpu::of(number)
        .hardware_id
        .store(hardware_id, Ordering::Relaxed);
    secondary_root.store(paging::kernel_root(), Ordering::Relaxed);
    secondary_stack.store(stack, Ordering::Release);
    let expected = STARTED.load(Ordering::Acquire) + 1;
    let came = || STARTED.load(Ordering::Acquire) == expected;
    let entry = paging::image_to_physical(secondary_entry as *const () as u64);
    if !power::start_cpu(hardware_id, entry, number.into()) {
        return false;
    }
    let end = time::now() + PATIENCE;
    while time::now() < end {
        if came() {
            return true;
        }
        core::hint::spin_loop();
    }
    came()
}

/// This CPU's number in the hardware.
pub fn own_id() -> u64 {
    read_sysreg!("mpidr_el1") & AFFINITY
}

/// The first Rust of another CPU, on its idle thread's stack and the kernel's tables.
pub extern "C" fn begin(number: u32) -> ! {
    percpu::install(number, own_id());
    features::enable();
    paging::load_no_space();
    // The boot tables map user addresses, too, and as global.
    tlb::flush_everything();
    if !asid::fit() {
        // It counts as a CPU that does not start.
        power::halt();
    }
    gic::enable(number);
    STARTED.fetch_add(1, Ordering::AcqRel);
    crate::sched::idle::begin()
}
