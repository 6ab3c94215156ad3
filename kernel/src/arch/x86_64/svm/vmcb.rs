//! The virtual machine control block (VMCB): a page by which the kernel and the CPU tell each other about a
//! guest. AMD's manual, volume 2, appendix B. Written by the thread that runs the vCPU, and by the CPU.

use core::mem::offset_of;

use bitflags::bitflags;

bitflags! {
    /// What makes a guest leave (the words at offsets 0xc and 0x10).
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct Intercepts: u64 {
        const INTERRUPT = 1 << 0;
        const NMI = 1 << 1;
        const SMI = 1 << 2;
        const INIT = 1 << 3;
        const INTERRUPT_WINDOW = 1 << 4;
        const RDPMC = 1 << 15;
        const CPUID = 1 << 18;
        const INVD = 1 << 22;
        const HLT = 1 << 24;
        const INVLPGA = 1 << 26;
        const PORTS = 1 << 27;
        const MESSAGES = 1 << 28;
        const TASK_SWITCH = 1 << 29;
        const SHUTDOWN = 1 << 31;
        const VMRUN = 1 << 32;
        const VMMCALL = 1 << 33;
        const VMLOAD = 1 << 34;
        const VMSAVE = 1 << 35;
        const STGI = 1 << 36;
        const CLGI = 1 << 37;
        const SKINIT = 1 << 38;
        const WBINVD = 1 << 41;
        const MONITOR = 1 << 42;
        const MWAIT = 1 << 43;
        const XSETBV = 1 << 45;
    }
}

bitflags! {
    /// Which parts of the block the kernel has not changed since the guest left.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct Clean: u32 {
        const INTERCEPTS = 1 << 0;
        const BITMAPS = 1 << 1;
        const IDENTIFIER = 1 << 2;
        const INTERRUPTS = 1 << 3;
        const NESTED = 1 << 4;
        const CONTROL_REGISTERS = 1 << 5;
        const DEBUG_REGISTERS = 1 << 6;
        const TABLES = 1 << 7;
        const SEGMENTS = 1 << 8;
        const CR2 = 1 << 9;
        const BRANCHES = 1 << 10;
    }
}

/// The control area.
#[repr(C)]
pub struct Control {
    pub intercept_cr: u32,
    pub intercept_dr: u32,
    pub intercept_exceptions: u32,
    pub intercepts: [u32; 2],
    reserved_14: [u8; 0x40 - 0x14],
    pub ports: u64,
    pub messages: u64,
    pub tsc_offset: u64,
    pub identifier: u32,
    pub flush: u8,
    reserved_5d: [u8; 3],
    pub interrupt_control: u32,
    pub interrupt_vector: u32,
    pub interrupt_state: u64,
    pub exit_code: u64,
    pub exit_info_1: u64,
    pub exit_info_2: u64,
    pub exit_interrupt: u32,
    pub exit_interrupt_error: u32,
    pub nested: u64,
    reserved_98: [u8; 0xa8 - 0x98],
    pub event: u32,
    pub event_error: u32,
    pub nested_root: u64,
    pub virtual_extensions: u64,
    pub clean: u32,
    reserved_c4: u32,
    pub next_rip: u64,
    pub instruction_length: u8,
    pub instruction: [u8; 15],
    reserved_e0: [u8; 0x400 - 0xe0],
}

/// A segment register.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    pub selector: u16,
    pub attributes: u16,
    pub limit: u32,
    pub base: u64,
}

/// The guest's state.
#[repr(C)]
pub struct Save {
    pub es: Segment,
    pub cs: Segment,
    pub ss: Segment,
    pub ds: Segment,
    pub fs: Segment,
    pub gs: Segment,
    pub gdtr: Segment,
    pub ldtr: Segment,
    pub idtr: Segment,
    pub tr: Segment,
    reserved_a0: [u8; 0xcb - 0xa0],
    pub cpl: u8,
    reserved_cc: u32,
    pub efer: u64,
    reserved_d8: [u8; 0x148 - 0xd8],
    pub cr4: u64,
    pub cr3: u64,
    pub cr0: u64,
    pub dr7: u64,
    pub dr6: u64,
    pub rflags: u64,
    pub rip: u64,
    reserved_180: [u8; 0x1d8 - 0x180],
    pub rsp: u64,
    reserved_1e0: [u8; 0x1f8 - 0x1e0],
    pub rax: u64,
    pub star: u64,
    pub lstar: u64,
    pub cstar: u64,
    pub sfmask: u64,
    pub kernel_gs_base: u64,
    pub sysenter_cs: u64,
    pub sysenter_esp: u64,
    pub sysenter_eip: u64,
    pub cr2: u64,
    reserved_248: [u8; 0x268 - 0x248],
    pub pat: u64,
    reserved_270: [u8; 0xc00 - 0x270],
}

/// The whole block.
#[repr(C, align(4096))]
pub struct Vmcb {
    pub control: Control,
    pub save: Save,
}

const _: () = {
    assert!(size_of::<Vmcb>() == 4096);
    assert!(offset_of!(Control, ports) == 0x40);
    assert!(offset_of!(Control, identifier) == 0x58);
    assert!(offset_of!(Control, interrupt_control) == 0x60);
    assert!(offset_of!(Control, exit_code) == 0x70);
    assert!(offset_of!(Control, exit_interrupt) == 0x88);
    assert!(offset_of!(Control, event) == 0xa8);
    assert!(offset_of!(Control, nested_root) == 0xb0);
    assert!(offset_of!(Control, clean) == 0xc0);
    assert!(offset_of!(Control, next_rip) == 0xc8);
    assert!(offset_of!(Vmcb, save) == 0x400);
    assert!(offset_of!(Save, cpl) == 0xcb);
    assert!(offset_of!(Save, efer) == 0xd0);
    assert!(offset_of!(Save, cr4) == 0x148);
    assert!(offset_of!(Save, rip) == 0x178);
    assert!(offset_of!(Save, rsp) == 0x1d8);
    assert!(offset_of!(Save, rax) == 0x1f8);
    assert!(offset_of!(Save, cr2) == 0x240);
    assert!(offset_of!(Save, pat) == 0x268);
};
