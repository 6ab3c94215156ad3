//! The state of the floating-point and vector registers.
//!
//! The kernel is compiled without them, so the registers always hold the state of the thread that runs (or
//! ran last) here. It is saved and restored when a CPU switches threads, and for signals; never on a fault or
//! a system call.

/// The 32 vector registers, status and control.
pub const AREA_SIZE: usize = 32 * 16 + 16;

/// Saved state, in the layout of Linux's `struct user_fpsimd_state`.
#[repr(C, align(16))]
#[derive(Clone)]
pub struct Area {
    pub vectors: [u128; 32],
    pub status: u32,
    pub control: u32,
    reserved: [u32; 2],
}

const _: () = assert!(size_of::<Area>() == AREA_SIZE);

impl Area {
    /// The state in which a program begins.
    pub const fn initial() -> Self {
        Self {
            vectors: [0; 32],
            status: 0,
            control: 0,
            reserved: [0; 2],
        }
    }
}

/// Bytes of state in use.
pub fn size() -> usize {
    AREA_SIZE
}

/// Loads the state in which a program begins.
pub fn reset() {
    restore(&const { Area::initial() });
}

/// Saves the registers.
pub fn save(area: &mut Area) {
    // SAFETY: The area is aligned, and has room for all registers.
    unsafe {
        core::arch::asm!(
            ".arch_extension fp",
            ".arch_extension simd",
            "stp q0, q1, [{at}]",
            "stp q2, q3, [{at}, #32]",
            "stp q4, q5, [{at}, #64]",
            "stp q6, q7, [{at}, #96]",
            "stp q8, q9, [{at}, #128]",
            "stp q10, q11, [{at}, #160]",
            "stp q12, q13, [{at}, #192]",
            "stp q14, q15, [{at}, #224]",
            "stp q16, q17, [{at}, #256]",
            "stp q18, q19, [{at}, #288]",
            "stp q20, q21, [{at}, #320]",
            "stp q22, q23, [{at}, #352]",
            "stp q24, q25, [{at}, #384]",
            "stp q26, q27, [{at}, #416]",
            "stp q28, q29, [{at}, #448]",
            "stp q30, q31, [{at}, #480]",
            "mrs {status}, fpsr",
            "mrs {control}, fpcr",
            "str {status:w}, [{at}, #512]",
            "str {control:w}, [{at}, #516]",
            ".arch_extension nosimd",
            ".arch_extension nofp",
            at = in(reg) core::ptr::from_mut(area),
            status = out(reg) _,
            control = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Loads the registers.
pub fn restore(area: &Area) {
    // SAFETY: As above; any bits are a value of these registers.
    unsafe {
        core::arch::asm!(
            ".arch_extension fp",
            ".arch_extension simd",
            "ldp q0, q1, [{at}]",
            "ldp q2, q3, [{at}, #32]",
            "ldp q4, q5, [{at}, #64]",
            "ldp q6, q7, [{at}, #96]",
            "ldp q8, q9, [{at}, #128]",
            "ldp q10, q11, [{at}, #160]",
            "ldp q12, q13, [{at}, #192]",
            "ldp q14, q15, [{at}, #224]",
            "ldp q16, q17, [{at}, #256]",
            "ldp q18, q19, [{at}, #288]",
            "ldp q20, q21, [{at}, #320]",
            "ldp q22, q23, [{at}, #352]",
            "ldp q24, q25, [{at}, #384]",
            "ldp q26, q27, [{at}, #416]",
            "ldp q28, q29, [{at}, #448]",
            "ldp q30, q31, [{at}, #480]",
            "ldr {status:w}, [{at}, #512]",
            "ldr {control:w}, [{at}, #516]",
            "msr fpsr, {status}",
            "msr fpcr, {control}",
            ".arch_extension nosimd",
            ".arch_extension nofp",
            at = in(reg) core::ptr::from_ref(area),
            status = out(reg) _,
            control = out(reg) _,
            options(nostack, preserves_flags, readonly),
        );
    }
}
