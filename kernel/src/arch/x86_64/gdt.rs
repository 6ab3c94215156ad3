//! Segments and the task state segment, per CPU.
//!
//! The order is fixed by SYSCALL and SYSRET: kernel code, kernel data, (32-bit user code, absent),
//! user data, user code. The selectors that a program sees are Linux's.

use core::sync::atomic::{AtomicU64, Ordering};

use super::percpu::MAX_CPUS;

use crate::memory::boot_frames::BootFrames;

pub const KERNEL_CODE: u16 = 0x10;
pub const KERNEL_DATA: u16 = 0x18;
pub const USER_DATA: u16 = 0x2b;
pub const USER_CODE: u16 = 0x33;
const TASK: u16 = 0x40;

/// Interrupt stacks: one each for the exceptions that may strike with an unusable stack.
pub const IST_DOUBLE_FAULT: u8 = 1;
pub const IST_NMI: u8 = 2;
pub const IST_DEBUG: u8 = 3;
pub const IST_MACHINE_CHECK: u8 = 4;
const IST_PAGES: u64 = 4;

#[repr(C, align(16))]
struct Tables {
    gdt: [AtomicU64; 10],
    /// The task state segment as 32-bit words; `rsp0` is at words 1 and 2.
    task: [core::sync::atomic::AtomicU32; 26],
}

static TABLES: [Tables; MAX_CPUS] = [const {
    Tables {
        gdt: [const { AtomicU64::new(0) }; 10],
        task: [const { core::sync::atomic::AtomicU32::new(0) }; 26],
    }
}; MAX_CPUS];

fn set_task_word(cpu: u32, byte: usize, value: u64) {
    let task = &TABLES[cpu as usize].task;
    task[byte / 4].store(value as u32, Ordering::Relaxed);
    task[byte / 4 + 1].store((value >> 32) as u32, Ordering::Relaxed);
}

/// Fills the tables of one CPU; boot CPU only.
pub fn prepare(cpu: u32, frames: &mut BootFrames) {
    for ist in 0..4 {
        let pages = frames.allocate_zeroed(IST_PAGES);
        let end = super::paging::physical_to_virtual(pages) as u64 + IST_PAGES * 4096;
        set_task_word(cpu, 36 + 8 * ist, end);
    }
    let tables = &TABLES[cpu as usize];
    // No I/O permission bitmap: its offset lies beyond the limit.
    tables.task[25].store(104 << 16, Ordering::Relaxed);
    let base = tables.task.as_ptr() as u64;
    let limit = 103;
    let task_low = limit | (base & 0xff_ffff) << 16 | 0x89 << 40 | (base >> 24 & 0xff) << 56;
    let values = [
        0,
        0,
        0x00af_9b00_0000_ffff, // 0x10 kernel code
        0x00cf_9300_0000_ffff, // 0x18 kernel data
        0,                     // 0x20 32-bit user code: not offered
        0x00cf_f300_0000_ffff, // 0x28 user data
        0x00af_fb00_0000_ffff, // 0x30 user code
        0,
        task_low,
        base >> 32,
    ];
    for (entry, value) in tables.gdt.iter().zip(values) {
        entry.store(value, Ordering::Relaxed);
    }
}

/// Loads the tables of this CPU.
pub fn load(cpu: u32) {
    let tables = &TABLES[cpu as usize];
    let pointer = x86_64::structures::DescriptorTablePointer {
        limit: 10 * 8 - 1,
        base: x86_64::VirtAddr::new(tables.gdt.as_ptr() as u64),
    };
    // SAFETY: The table is static and holds valid descriptors at the selectors loaded here.
    unsafe {
        x86_64::instructions::tables::lgdt(&pointer);
        core::arch::asm!(
            "push {code}",
            "lea {scratch}, [rip + 2f]",
            "push {scratch}",
            "retfq",
            "2:",
            "mov ss, {data:e}",
            "mov ds, {zero:e}",
            "mov es, {zero:e}",
            "ltr {task:x}",
            code = const KERNEL_CODE as u64,
            scratch = out(reg) _,
            data = in(reg) u32::from(KERNEL_DATA),
            zero = in(reg) 0u32,
            task = in(reg) TASK,
        );
    }
}

/// Sets the stack that traps from user mode begin on.
#[inline]
pub fn set_kernel_stack(cpu: u32, top: u64) {
    set_task_word(cpu, 4, top);
}
