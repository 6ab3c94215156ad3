//! The interrupt controller, a GICv3.

use core::ptr::NonNull;

use arm_gic::gicv3::registers::{Gicd, GicrSgi};
use arm_gic::gicv3::{GicCpuInterface, GicV3, SgiTarget, SgiTargetGroup};
use arm_gic::{IntId, InterruptGroup, Trigger, UniqueMmioPointer};

use super::paging::physical_to_virtual;
use super::percpu;
use super::sources::{FLUSH, RESCHEDULE, TIMER};
use super::start_info::Devices;
use crate::sync::SpinLock;
use core::sync::atomic::Ordering;

/// Shared interrupts begin here.
const SHARED: u32 = 32;
/// Reads of the acknowledge register that name no interrupt.
const SPECIAL: u32 = 1020;

struct Controller(GicV3<'static>);

// SAFETY: The registers are the machine's, not a CPU's.
unsafe impl Send for Controller {}

static CONTROLLER: SpinLock<Option<Controller>> = SpinLock::new(None);

/// Takes the controller over; boot CPU only.
///
/// # Errors
/// A line that says what is wrong with it.
pub fn find(devices: &Devices, cpus: usize) -> Result<(), &'static str> {
    let pointer = |physical| NonNull::new(physical_to_virtual(physical));
    let (distributor, redistributors) = devices.interrupts;
    let (Some(distributor), Some(redistributors)) = (pointer(distributor), pointer(redistributors))
    else {
        return Err("there is no interrupt controller");
    };
    // SAFETY: The device tree names the controller's registers, which the direct map has as device memory, and
    // nothing else uses them.
    let controller = unsafe {
        let distributor = UniqueMmioPointer::new(distributor.cast::<Gicd>());
        GicV3::new(distributor, redistributors.cast::<GicrSgi>(), cpus)
    };
    let mut controller = controller.map_err(|_| "the interrupt controller is no GICv3")?;
    controller.setup(0);
    *CONTROLLER.lock() = Some(Controller(controller));
    Ok(())
}

fn with<R>(f: impl FnOnce(&mut GicV3<'static>) -> R) -> Option<R> {
    CONTROLLER
        .lock()
        .as_mut()
        .map(|controller| f(&mut controller.0))
}

/// Turns this CPU's part on.
pub fn enable(cpu: u32) {
    with(|gic| {
        gic.init_cpu(cpu as usize);
        for number in [RESCHEDULE, FLUSH] {
            let _ = gic.enable_interrupt(IntId::sgi(number), Some(cpu as usize), true);
        }
        let _ = gic.enable_interrupt(IntId::ppi(TIMER - 16), Some(cpu as usize), true);
    });
    GicCpuInterface::set_priority_mask(0xff);
    GicCpuInterface::enable_group1(true);
}

/// Routes a device's interrupt, a level, to the boot CPU.
pub fn route(number: u32) {
    let id = IntId::spi(number - SHARED);
    let boot = percpu::of(0).hardware_id.load(Ordering::Relaxed);
    with(|gic| {
        let _ = gic.set_trigger(id, None, Trigger::Level);
        let _ = gic.set_interrupt_priority(id, None, 0x80);
        let _ = gic.distributor().set_routing(id, Some(boot));
        let _ = gic.enable_interrupt(id, None, true);
    });
}

/// Acknowledges the pending interrupt; `None`: there is none.
#[inline]
pub fn acknowledge() -> Option<u32> {
    let number = GicCpuInterface::get_and_acknowledge_interrupt(InterruptGroup::Group1)?;
    Some(number.raw_value()).filter(|&number| number < SPECIAL)
}

/// Ends the interrupt in service.
#[inline]
pub fn end(number: u32) {
    let id = match number {
        0..16 => IntId::sgi(number),
        16..32 => IntId::ppi(number - 16),
        _ => IntId::spi(number - SHARED),
    };
    GicCpuInterface::end_interrupt(id, InterruptGroup::Group1);
}

/// Sends a software-generated interrupt to another CPU, which sees all stores from before.
#[inline]
pub fn send(cpu: u32, number: u32) {
    let at = percpu::of(cpu).hardware_id.load(Ordering::Relaxed);
    // SAFETY: Barriers: stores before the interrupt, and the interrupt before all that follows.
    unsafe { core::arch::asm!("dsb ishst", options(nostack, preserves_flags)) };
    let target = SgiTarget::List {
        affinity3: (at >> 32) as u8,
        affinity2: (at >> 16) as u8,
        affinity1: (at >> 8) as u8,
        target_list: 1 << (at & 15),
    };
    let _ = GicCpuInterface::send_sgi(IntId::sgi(number), target, SgiTargetGroup::CurrentGroup1);
    super::sysreg::isb();
}
