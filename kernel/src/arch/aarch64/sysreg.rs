//! System registers, by name.

/// Reads a system register. The reads used here have no effect.
macro_rules! read_sysreg {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: Reading a register of the kernel's exception level has no effect.
        unsafe {
            core::arch::asm!(concat!("mrs {}, ", $name), out(reg) value,
                options(nomem, nostack, preserves_flags));
        }
        value
    }};
}

/// Writes a system register; unsafe, because some decide what memory is.
macro_rules! write_sysreg {
    ($name:literal, $value:expr) => {
        core::arch::asm!(concat!("msr ", $name, ", {}"), in(reg) $value,
            options(nostack, preserves_flags))
    };
}

pub(super) use {read_sysreg, write_sysreg};

/// A context synchronisation: writes of system registers take effect for the instructions that follow.
#[inline]
pub fn isb() {
    // SAFETY: A barrier.
    unsafe { core::arch::asm!("isb", options(nostack, preserves_flags)) };
}
