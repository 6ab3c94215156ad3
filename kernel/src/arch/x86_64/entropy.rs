//! The CPU's source of random numbers: RDRAND.

use super::features::{Features, features};

/// Whether the CPU has it.
pub fn is_there() -> bool {
    features().contains(Features::RDRAND)
}

/// Takes eight bytes, if it has any now. The CPU has it.
pub fn take() -> Option<u64> {
    let value: u64;
    let ok: u8;
    // SAFETY: The CPU has the instruction.
    unsafe {
        core::arch::asm!("rdrand {}", "setc {}", out(reg) value, out(reg_byte) ok,
            options(nomem, nostack));
    }
    (ok != 0).then_some(value)
}
