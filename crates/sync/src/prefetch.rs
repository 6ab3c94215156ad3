//! A hint that a line will be written soon.

/// Asks for the line at `line`, to write it, without waiting and without effect
/// on what any program reads. Any address will do.
///
/// Worth it where a store would otherwise be the first to touch a cold line and
/// a claim, which waits for all stores before it, comes soon after.
#[inline]
pub fn prefetch_to_write<T>(line: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, and no more than that on CPUs without it; it faults never, whatever the
    // address. The intrinsic asks for a line to read unless the build's CPU has `prfchw`.
    unsafe {
        core::arch::asm!("prefetchw [{0}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{0}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = line;
}
