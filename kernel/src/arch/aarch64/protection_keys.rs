//! Protection keys: this architecture has none that the kernel uses. Execute-only memory has entries that user mode cannot
//! load by, where the kernel's loads are refused there, too (`FEAT_PAN3`); elsewhere it can be read, as on Linux.

use faultless_mm::Access;

use super::features::{Features, features};

/// The key of execute-only memory where there are keys.
pub const EXECUTE_ONLY: u32 = 1;

/// Whether CPUs of this architecture may have protection keys.
pub const MAY_BE_USED: bool = false;

/// Whether the CPU has protection keys.
pub fn are_used() -> bool {
    false
}

/// Whether an access to execute-only memory is refused.
pub fn refuse(_key: u32, access: Access) -> bool {
    access != Access::Execute && features().contains(Features::EXECUTE_ONLY)
}
