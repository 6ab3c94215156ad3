//! Starting the other CPUs.
//!
//! A CPU wakes in real mode at a page of low memory. The trampoline copied there enters long mode directly,
//! on the boot tables (which map low memory). It jumps to the kernel's base, switches to the kernel's tables
//! and to the idle thread's stack, and calls Rust. CPUs are started one after the other.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU32, Ordering};

use super::boot::KERNEL_BASE;
use super::features;
use super::{apic, entry, fpu, gdt, idt, msr, paging, percpu, time};

/// The physical page of the trampoline; low memory is never allocated.
const PAGE: u64 = 0x8000;
/// Where in that page its parameters are: boot root, EFER, kernel root, stack, CPU number; then a
/// descriptor table of one segment, and the pointer to it.
const DATA: u64 = 0xf00;
const GDT: usize = 6;
const GDT_POINTER: usize = 8;

global_asm!(
    r#"
    .pushsection .rodata.trampoline, "a", @progbits
    .balign 16
    .global trampoline_start
    trampoline_start:
    .code16
        cli
        cld
        xor eax, eax
        mov ds, ax
        lgdt [{gdt_pointer}]
        mov eax, 0x20
        mov cr4, eax
        mov eax, [{data}]
        mov cr3, eax
        mov ecx, 0xc0000080
        mov eax, [{data} + 8]
        xor edx, edx
        wrmsr
        mov eax, 0x80010011
        mov cr0, eax
        .byte 0x66, 0xea            # far jump, 32-bit offset
        .long 0x8000 + trampoline_long - trampoline_start
        .word 8
    .code64
    trampoline_long:
        mov eax, 0
        mov ds, eax
        mov es, eax
        mov ss, eax
        mov fs, eax
        mov gs, eax
        mov rbx, [{data} + 16]
        mov rcx, [{data} + 24]
        mov edi, [{data} + 32]
        movabs rax, offset trampoline_high
        jmp rax
    .global trampoline_end
    trampoline_end:
    .popsection

    .text
    trampoline_high:
        mov cr3, rbx
        mov rsp, rcx
        xor ebp, ebp
        push 0
        jmp {begin}
    "#,
    begin = sym begin,
    data = const PAGE + DATA,
    gdt_pointer = const PAGE + DATA + 8 * GDT_POINTER as u64,
);

unsafe extern "C" {
    static trampoline_start: u8;
    static trampoline_end: u8;
    static boot_root: u8;
}

/// CPUs that have reported that they run.
static STARTED: AtomicU32 = AtomicU32::new(1);

/// Starts the CPU with this APIC id as number `number`, on this stack; returns whether it started.
pub fn start(number: u32, hardware_id: u64, stack: u64) -> bool {
    let apic_id = hardware_id as u32;
    percpu::of(number)
        .hardware_id
        .store(hardware_id, Ordering::Relaxed);
    // System calls, long mode, execute-disable.
    let efer = 1 | 1 << 8 | 1 << 11;
    // SAFETY: Low memory is never allocated; the CPU that will read it does not run yet.
    unsafe {
        let from = &raw const trampoline_start;
        let length = (&raw const trampoline_end).offset_from_unsigned(from);
        let to = paging::physical_to_virtual(PAGE);
        to.copy_from_nonoverlapping(from, length);
        let data = to.add(DATA as usize).cast::<u64>();
        data.write_volatile((&raw const boot_root) as u64 - KERNEL_BASE);
        data.add(1).write_volatile(efer);
        data.add(2).write_volatile(paging::kernel_root());
        data.add(3).write_volatile(stack);
        data.add(4).write_volatile(u64::from(number));
        data.add(GDT).write_volatile(0);
        data.add(GDT + 1).write_volatile(0x00af_9b00_0000_ffff);
        data.add(GDT_POINTER)
            .write_volatile(15 | (PAGE + DATA + 8 * GDT as u64) << 16);
    }
    let expected = STARTED.load(Ordering::Acquire) + 1;
    let came = || STARTED.load(Ordering::Acquire) == expected;
    apic::init(apic_id);
    wait(10_000_000, || false);
    for _ in 0..2 {
        apic::startup(apic_id, (PAGE >> 12) as u8);
        if wait(200_000, came) {
            return true;
        }
    }
    wait(2_000_000_000, came)
}

fn wait(nanoseconds: u64, until: impl Fn() -> bool) -> bool {
    let end = time::now() + nanoseconds;
    while time::now() < end {
        if until() {
            return true;
        }
        core::hint::spin_loop();
    }
    until()
}

/// Sets up the current CPU, before it may run threads.
pub fn set_up_this_cpu(number: u32, boot: bool) {
    gdt::load(number);
    idt::load();
    // Loading segments has cleared the GS base.
    msr::write(msr::GS_BASE, core::ptr::from_ref(percpu::of(number)) as u64);
    features::enable();
    fpu::enable(boot);
    entry::enable_syscall();
}

extern "C" fn begin(number: u32) -> ! {
    percpu::install(
        number,
        percpu::of(number).hardware_id.load(Ordering::Relaxed),
    );
    set_up_this_cpu(number, false);
    apic::enable();
    STARTED.fetch_add(1, Ordering::AcqRel);
    crate::sched::idle::begin()
}
