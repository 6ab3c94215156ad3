//! From the first instruction to Rust.
//!
//! The loader enters by Linux's boot protocol (Documentation/arch/arm64/booting.rst): the MMU off, `x0` = physical
//! address of the device tree, at EL1 or EL2. The code below maps the first 512 GiB with 1 GiB blocks twice, at 0
//! and at the direct map, and 32 MiB of the image at the kernel's base. It then turns the MMU on and jumps to the
//! kernel's base. These tables live until `kernel_map::build` replaces them; only then do protections hold.
//!
//! The blocks from 1 GiB to 64 GiB are taken for memory, all others for devices, as on QEMU's `virt`.

use core::arch::global_asm;

use super::paging::{BOOT_DEVICE, BOOT_MEMORY, MAIR, TCR};

/// The address of the kernel's image.
pub const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;

/// The end of the physical memory that the boot tables map as memory.
pub const BOOT_MAPPED_END: u64 = 64 << 30;

/// SCTLR_EL1: MMU and caches on, stack alignment checked, accesses to user memory forbidden on entry (SPAN clear),
/// and allowed for user mode: DC ZVA, CTR_EL0, cache maintenance, WFI and WFE.
pub const SCTLR: u64 = 1 << 0
    | 1 << 2
    | 1 << 3
    | 1 << 4
    | 1 << 7
    | 1 << 8
    | 1 << 11
    | 1 << 12
    | 1 << 14
    | 1 << 15
    | 1 << 16
    | 1 << 18
    | 1 << 20
    | 1 << 22
    | 1 << 26
    | 1 << 28
    | 1 << 29;

global_asm!(
    r#"
    .pushsection .boot.text, "ax"
    .global image_header
    image_header:
        b boot_entry
        .long 0
        .quad 0                     // offset from a multiple of 2 MiB
        .quad __image_size
        .quad 0xa                   // little-endian, 4 KiB pages, anywhere in memory
        .quad 0, 0, 0
        .ascii "ARM\x64"
        .long 0

    boot_entry:
        mov x20, x0
        bl to_el1
        // Zero .bss, which the image does not hold.
        adrp x1, __bss_start
        adrp x2, __data_end
    1:  stp xzr, xzr, [x1], #16
        cmp x1, x2
        b.lo 1b
        // 512 blocks of 1 GiB.
        adrp x1, boot_low
        mov x2, #0
        ldr x3, ={device}
        ldr x4, ={memory}
    2:  sub x5, x2, #1
        cmp x5, #63
        csel x5, x4, x3, lo
        add x5, x5, x2, lsl #30
        str x5, [x1, x2, lsl #3]
        add x2, x2, #1
        cmp x2, #512
        b.ne 2b
        orr x1, x1, #3
        adrp x2, boot_user_root
        str x1, [x2]
        adrp x2, boot_root
        str x1, [x2, #256 * 8]
        adrp x1, boot_high
        orr x3, x1, #3
        str x3, [x2, #511 * 8]
        adrp x3, boot_image
        orr x5, x3, #3
        str x5, [x1, #510 * 8]
        adrp x5, image_header
        mov x6, #16
    3:  orr x7, x5, x4
        str x7, [x3], #8
        add x5, x5, #0x200000
        subs x6, x6, #1
        b.ne 3b
        bl mmu_on
        ldr x1, =boot_high_code
        br x1
    boot_high_code:
        ldr x1, =boot_stack_end
        mov sp, x1
        mov x29, xzr
        mov x30, xzr
        ldr x1, =vectors
        msr vbar_el1, x1
        isb
        mov x0, x20
        adrp x1, image_header
        at s1e1r, x1
        isb
        mrs x1, par_el1
        and x1, x1, #0x0000fffffffff000
        b {start}

        // The first instructions of another CPU; x0 = its number.
    .global secondary_entry
    secondary_entry:
        mov x20, x0
        bl to_el1
        bl mmu_on
        ldr x1, =secondary_high
        br x1
    secondary_high:
        // Its stack is in the kernel's own tables only.
        ldr x1, =secondary_root
        ldr x1, [x1]
        msr ttbr1_el1, x1
        isb
        tlbi vmalle1
        dsb nsh
        isb
        ldr x1, =secondary_stack
        ldr x1, [x1]
        mov sp, x1
        mov x29, xzr
        mov x30, xzr
        ldr x1, =vectors
        msr vbar_el1, x1
        isb
        mov x0, x20
        b {begin}

        // From EL2 to EL1, which has all its registers to itself; or nothing.
    to_el1:
        mrs x1, CurrentEL
        cmp x1, #8
        b.ne 1f
        mov x1, #1 << 31            // HCR_EL2: EL1 is AArch64
        msr hcr_el2, x1
        mov x1, #3
        msr cnthctl_el2, x1
        msr cntvoff_el2, xzr
        mov x1, #0x33ff             // CPTR_EL2: no traps
        msr cptr_el2, x1
        msr hstr_el2, xzr
        mrs x1, ICC_SRE_EL2
        orr x1, x1, #0xf
        msr ICC_SRE_EL2, x1
        mrs x1, midr_el1
        msr vpidr_el2, x1
        mrs x1, mpidr_el1
        msr vmpidr_el2, x1
        ldr x1, ={sctlr} & ~5
        msr sctlr_el1, x1
        mov x1, #0x3c5              // EL1 with its own stack pointer, all masked
        msr spsr_el2, x1
        msr elr_el2, x30
        eret
    1:  ret

    mmu_on:
        ldr x1, ={mair}
        msr mair_el1, x1
        // The size of physical addresses is what the CPU has.
        mrs x2, id_aa64mmfr0_el1
        and x2, x2, #7
        ldr x1, ={tcr}
        orr x1, x1, x2, lsl #32
        msr tcr_el1, x1
        adrp x1, boot_user_root
        msr ttbr0_el1, x1
        adrp x1, boot_root
        msr ttbr1_el1, x1
        dsb sy
        tlbi vmalle1
        dsb nsh
        isb
        ic iallu
        dsb nsh
        isb
        ldr x1, ={sctlr}
        msr sctlr_el1, x1
        isb
        ret
        .ltorg
    .popsection

    .pushsection .bss, "aw", @nobits
    .balign 4096
    boot_user_root: .skip 4096
    .global boot_root
    boot_root:      .skip 4096
    boot_low:       .skip 4096
    boot_high:      .skip 4096
    boot_image:     .skip 4096
    boot_stack:     .skip 32768
    boot_stack_end:
    .popsection
    "#,
    start = sym super::start::kernel_start,
    begin = sym super::smp::begin,
    device = const BOOT_DEVICE,
    memory = const BOOT_MEMORY,
    mair = const MAIR,
    tcr = const TCR,
    sctlr = const SCTLR,
);

unsafe extern "C" {
    /// Where another CPU begins.
    pub fn secondary_entry();
}
