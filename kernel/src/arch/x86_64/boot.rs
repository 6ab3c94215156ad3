//! From the first instruction to Rust.
//!
//! QEMU enters by the PVH note: 32-bit protected mode, no paging, `ebx` = physical address of the start
//! information. The code below maps the first 4 GiB with 2 MiB pages three times: at 0, at the direct map
//! and, only the first of them, at the kernel's base. It then turns long mode on and jumps to the kernel's
//! base. These tables live until `paging::build` replaces them; only then do protections hold.

use core::arch::global_asm;

/// The address of physical address 0 in the kernel's own mapping.
pub const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;

/// The end of the physical memory that the boot tables map.
pub const BOOT_MAPPED_END: u64 = 4 << 30;

global_asm!(
    r#"
    .pushsection .note.pvh, "a", @note
    .balign 4
    .long 4, 4, 18              # name size, description size, XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .long pvh_start - {base}
    .popsection

    .pushsection .boot.text, "ax"
    .code32
    .global pvh_start
    pvh_start:
        cli
        cld
        # Four page directories that map 0..4 GiB.
        mov edi, offset boot_directories - {base}
        mov eax, 0x83           # present, writable, 2 MiB
        mov ecx, 2048
    1:  mov [edi], eax
        mov dword ptr [edi + 4], 0
        add eax, 0x200000
        add edi, 8
        dec ecx
        jnz 1b
        # The page-directory-pointer table of 0 and of the direct map.
        mov edi, offset boot_low - {base}
        mov eax, offset boot_directories - {base} + 3
        mov ecx, 4
    2:  mov [edi], eax
        add eax, 0x1000
        add edi, 8
        dec ecx
        jnz 2b
        # That of the last 2 GiB, and the root.
        mov eax, offset boot_directories - {base} + 3
        mov edi, offset boot_high - {base}
        mov [edi + 510 * 8], eax
        mov edi, offset boot_root - {base}
        mov eax, offset boot_low - {base} + 3
        mov [edi], eax
        mov [edi + 256 * 8], eax
        mov eax, offset boot_high - {base} + 3
        mov [edi + 511 * 8], eax
        mov eax, cr4
        or eax, 0x20            # PAE
        mov cr4, eax
        mov cr3, edi
        mov ecx, 0xc0000080     # EFER: long mode
        rdmsr
        or eax, 0x100
        wrmsr
        mov eax, cr0
        or eax, 0x80010001      # paging, write protect, protection
        mov cr0, eax
        lgdt [boot_gdt_pointer - {base}]
        mov esp, offset boot_stack_end - {base}
        push 8
        mov eax, offset boot_long - {base}
        push eax
        retf
    .code64
    boot_long:
        movabs rax, offset boot_high_code
        jmp rax
    boot_high_code:
        xor eax, eax
        mov ds, eax
        mov es, eax
        mov ss, eax
        mov fs, eax
        mov gs, eax
        mov rsp, offset boot_stack_end
        xor ebp, ebp
        mov edi, ebx
        call {start}
        ud2

    .balign 8
    boot_gdt:
        .quad 0
        .quad 0x00af9b000000ffff    # 64-bit code
    boot_gdt_pointer:
        .word 15
        .long boot_gdt - {base}
    .popsection

    .pushsection .bss, "aw", @nobits
    .balign 4096
    .global boot_root
    boot_root:        .skip 4096
    boot_low:         .skip 4096
    boot_high:        .skip 4096
    boot_directories: .skip 4 * 4096
    boot_stack:       .skip 32768
    boot_stack_end:
    .popsection
    "#,
    base = const KERNEL_BASE,
    start = sym super::start::kernel_start,
);
