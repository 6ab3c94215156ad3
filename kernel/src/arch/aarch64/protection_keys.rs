//! Protection keys: this architecture has none that the kernel uses. Execute-only memory has entries of its own.

use faultless_mm::Access;

/// The key of execute-only memory where there are keys.
pub const EXECUTE_ONLY: u32 = 1;

/// Whether the CPU has protection keys.
pub fn are_used() -> bool {
    false
}

/// Whether the current thread is refused an access to memory with this key.
pub fn refuse(_key: u32, _access: Access) -> bool {
    false
}
