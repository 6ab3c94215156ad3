//! The full barrier after a read-modify-write (rule R13 of the design).

/// Orders everything before a read-modify-write of this thread against everything after it, including loads.
///
/// To be called right after an atomic read-modify-write that succeeded. On x86-64 such an instruction is
/// itself a full barrier, so this is only a compiler barrier. Elsewhere it is a full fence: on AArch64 even
/// an acquire-release LSE atomic lets a later load pass its own store.
///
/// Every use names its partner: the other side's full fence between its write and its read.
#[inline(always)]
pub fn fence_after_rmw() {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle))))]
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    #[cfg(any(not(target_arch = "x86_64"), loom, shuttle))]
    crate::atomic::fence(crate::atomic::Ordering::SeqCst);
}
