//! A hint that a line will be written soon.

/// Prefetches the line at `line` for writing, without waiting and without any visible effect. Any address is
/// allowed.
///
/// It is worthwhile if a store would otherwise be the first access to a cold line, and a claim follows soon
/// after: the claim waits for all earlier stores.
#[inline]
pub fn prefetch_to_write<T>(line: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, and without effect on CPUs that lack it; it never faults, whatever the address. The
    // intrinsic would prefetch for reading unless the build's CPU has `prfchw`.
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
