//! The CPU's source of random numbers: RNDR.

use super::features::{Features, features};

/// Whether the CPU has it.
pub fn is_there() -> bool {
    features().contains(Features::RNDR)
}

/// Takes eight bytes, if it has any now. The CPU has it.
pub fn take() -> Option<u64> {
    let value: u64;
    let ok: u64;
    // SAFETY: The CPU has the register; a failure sets the zero flag.
    unsafe {
        core::arch::asm!("mrs {}, s3_3_c2_c4_0", "cset {}, ne", out(reg) value, out(reg) ok,
            options(nomem, nostack));
    }
    (ok != 0).then_some(value)
}
