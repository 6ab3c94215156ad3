//! Model-specific registers that more than one module names.

pub const APIC_BASE: u32 = 0x1b;
pub const EFER: u32 = 0xc000_0080;
pub const STAR: u32 = 0xc000_0081;
pub const LSTAR: u32 = 0xc000_0082;
pub const FMASK: u32 = 0xc000_0084;
pub const FS_BASE: u32 = 0xc000_0100;
pub const GS_BASE: u32 = 0xc000_0101;
pub const KERNEL_GS_BASE: u32 = 0xc000_0102;

/// Reads a register that this CPU has.
pub fn read(register: u32) -> u64 {
    // SAFETY: Reading the registers named here has no effect.
    unsafe { x86_64::registers::model_specific::Msr::new(register).read() }
}

/// Writes a register that this CPU has.
pub fn write(register: u32, value: u64) {
    // SAFETY: Callers write registers named here with values that keep the kernel's own mappings,
    // entry points and per-CPU data valid.
    unsafe { x86_64::registers::model_specific::Msr::new(register).write(value) };
}
