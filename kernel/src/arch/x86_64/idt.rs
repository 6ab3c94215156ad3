//! The interrupt descriptor table: one for all CPUs, filled before the second one starts.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{entry, gdt};

/// The local timer.
pub const TIMER: u8 = 0x40;
/// Asks a CPU to check its thread's work, or its run queue.
pub const RESCHEDULE: u8 = 0x41;
/// Asks a CPU to check its flush mailbox.
pub const FLUSH: u8 = 0x42;
/// The serial port.
pub const SERIAL: u8 = 0x43;
/// The local APIC's spurious vector.
pub const SPURIOUS: u8 = 0xff;

#[repr(C, align(16))]
struct Table([[AtomicU64; 2]; 256]);

static IDT: Table = Table([const { [const { AtomicU64::new(0) }; 2] }; 256]);

fn set(vector: u8, handler: u64, ist: u8, user: bool) {
    let attributes = if user { 0xee } else { 0x8e };
    let low = handler & 0xffff
        | u64::from(gdt::KERNEL_CODE) << 16
        | u64::from(ist) << 32
        | attributes << 40
        | (handler >> 16 & 0xffff) << 48;
    IDT.0[usize::from(vector)][0].store(low, Ordering::Relaxed);
    IDT.0[usize::from(vector)][1].store(handler >> 32, Ordering::Relaxed);
}

/// Fills the table; boot CPU only.
pub fn fill() {
    for vector in 0..=255 {
        set(vector, entry::stub(vector), 0, false);
    }
    set(
        1,
        entry::debug_entry as *const () as u64,
        gdt::IST_DEBUG,
        false,
    );
    set(2, entry::nmi_entry as *const () as u64, gdt::IST_NMI, false);
    set(3, entry::stub(3), 0, true);
    set(4, entry::stub(4), 0, true);
    set(8, entry::stub(8), gdt::IST_DOUBLE_FAULT, false);
    set(14, entry::page_fault_entry as *const () as u64, 0, false);
    set(18, entry::stub(18), gdt::IST_MACHINE_CHECK, false);
    set(FLUSH, entry::flush_entry as *const () as u64, 0, false);
}

/// Loads the table on this CPU.
pub fn load() {
    let pointer = x86_64::structures::DescriptorTablePointer {
        limit: 4095,
        base: x86_64::VirtAddr::new(IDT.0.as_ptr() as u64),
    };
    // SAFETY: The table is static, and every entry leads to a stub.
    unsafe { x86_64::instructions::tables::lidt(&pointer) };
}
