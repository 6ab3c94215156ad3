//! Atomic instructions fault as the stores that they are: there is nothing to find out.

/// Whether a read fault may come from an instruction that also stores.
pub const READS_MAY_WRITE: bool = false;

/// Whether the faulting instruction of the current thread will store.
pub fn will_write() -> bool {
    false
}

/// Sets whether the kernel looks at instructions.
///
/// # Errors
/// There are none to look at.
pub fn choose(_on: bool) -> Result<(), &'static str> {
    Err("`atomic-rmw=` is for AArch64: atomic instructions fault once here")
}
