//! The local APIC: x2APIC registers if the CPU has them, else the memory window.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::features::{Features, features};
use super::{idt, msr, percpu};
use crate::memory::boot_frames::BootFrames;

const ID: u32 = 0x20;
const TASK_PRIORITY: u32 = 0x80;
const END: u32 = 0xb0;
const SPURIOUS: u32 = 0xf0;
const COMMAND: u32 = 0x300;
const COMMAND_HIGH: u32 = 0x310;
const LOCAL_TIMER: u32 = 0x320;
const LOCAL_0: u32 = 0x350;
const LOCAL_1: u32 = 0x360;
const INITIAL_COUNT: u32 = 0x380;
const CURRENT_COUNT: u32 = 0x390;
const DIVIDE: u32 = 0x3e0;

const DELIVER_NMI: u32 = 4 << 8;
const DELIVER_INIT: u32 = 5 << 8;
const DELIVER_STARTUP: u32 = 6 << 8;
const ASSERT: u32 = 1 << 14;
const PENDING: u32 = 1 << 12;
const MASKED: u32 = 1 << 16;

static WINDOW: AtomicU64 = AtomicU64::new(0);
static X2APIC: AtomicBool = AtomicBool::new(false);

fn read(register: u32) -> u32 {
    if X2APIC.load(Ordering::Relaxed) {
        return msr::read(0x800 + register / 16) as u32;
    }
    let at = WINDOW.load(Ordering::Relaxed) + u64::from(register);
    // SAFETY: The window is mapped and uncached; reading these registers has no side effect.
    unsafe { (at as *const u32).read_volatile() }
}

fn write(register: u32, value: u32) {
    if X2APIC.load(Ordering::Relaxed) {
        msr::write(0x800 + register / 16, u64::from(value));
        return;
    }
    let at = WINDOW.load(Ordering::Relaxed) + u64::from(register);
    // SAFETY: As above; what is written is this module's business.
    unsafe { (at as *mut u32).write_volatile(value) };
}

/// Finds the controller and maps it; boot CPU only.
pub fn find(frames: &mut BootFrames) {
    let base = msr::read(msr::APIC_BASE) & 0x000f_ffff_ffff_f000;
    X2APIC.store(features().contains(Features::X2APIC), Ordering::Relaxed);
    WINDOW.store(
        super::paging::map_device(base, frames) as u64,
        Ordering::Relaxed,
    );
    mask_old_controllers();
}

/// Masks the two 8259s, which would deliver on vectors of exceptions.
fn mask_old_controllers() {
    use x86_64::instructions::port::Port;
    // SAFETY: Masks every line of both.
    unsafe {
        Port::<u8>::new(0x21).write(0xff);
        Port::<u8>::new(0xa1).write(0xff);
    }
}

/// Turns this CPU's controller on, with its timer stopped.
pub fn enable() {
    let mut base = msr::read(msr::APIC_BASE) | 1 << 11;
    if X2APIC.load(Ordering::Relaxed) {
        base |= 1 << 10;
    }
    msr::write(msr::APIC_BASE, base);
    write(SPURIOUS, 0x100 | u32::from(idt::SPURIOUS));
    write(TASK_PRIORITY, 0);
    write(LOCAL_0, MASKED);
    // An NMI from outside requests the report: see `power::nmi`.
    write(LOCAL_1, DELIVER_NMI);
    write(DIVIDE, 0b0011); // by 16
    write(LOCAL_TIMER, u32::from(idt::TIMER));
    write(INITIAL_COUNT, 0);
}

/// This CPU's id.
pub fn id() -> u32 {
    let id = read(ID);
    if X2APIC.load(Ordering::Relaxed) {
        id
    } else {
        id >> 24
    }
}

/// Acknowledges the interrupt in service (EOI).
#[inline]
pub fn end_of_interrupt() {
    write(END, 0);
}

/// Arms one interrupt after this many timer counts; 0 stops the timer.
pub fn set_timer(count: u32) {
    write(INITIAL_COUNT, count);
}

/// The rest of the timer's count.
pub fn timer_count() -> u32 {
    read(CURRENT_COUNT)
}

fn send(apic_id: u32, command: u32) {
    if X2APIC.load(Ordering::Relaxed) {
        // Unlike a store to the window, this write does not wait for earlier stores; the receiver
        // has to see them.
        // SAFETY: Fences have no other effect.
        unsafe { core::arch::asm!("mfence", "lfence", options(nostack, preserves_flags)) };
        msr::write(
            0x800 + COMMAND / 16,
            u64::from(apic_id) << 32 | u64::from(command),
        );
        return;
    }
    while read(COMMAND) & PENDING != 0 {
        core::hint::spin_loop();
    }
    write(COMMAND_HIGH, apic_id << 24);
    write(COMMAND, command);
}

/// Interrupts another CPU.
pub fn interrupt(cpu: u32, vector: u8) {
    send(
        percpu::of(cpu).hardware_id.load(Ordering::Relaxed) as u32,
        ASSERT | u32::from(vector),
    );
}

/// Stops another CPU, whatever it does.
pub fn stop(cpu: u32) {
    send(
        percpu::of(cpu).hardware_id.load(Ordering::Relaxed) as u32,
        ASSERT | DELIVER_NMI,
    );
}

/// Resets another CPU, which then waits for `startup`.
pub fn init(apic_id: u32) {
    send(apic_id, ASSERT | DELIVER_INIT);
}

/// Starts a CPU at this page of low memory.
pub fn startup(apic_id: u32, page: u8) {
    send(apic_id, ASSERT | DELIVER_STARTUP | u32::from(page));
}
