//! Filling pages with zeroes, half of what a fault costs.
//!
//! Uses 32-byte stores if the CPU has AVX: a quarter of the instructions of `rep stosq` under an emulator
//! that executes it word by word, and as fast on hardware. The kernel owns no vector registers, so the one in
//! use, which holds the thread's value, is saved and restored.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

/// Whether AVX is present and turned on.
static WIDE: AtomicBool = AtomicBool::new(false);

/// Allows the use of AVX.
pub fn use_wide_stores() {
    WIDE.store(true, Ordering::Relaxed);
}

/// Fills a page with zeroes.
#[inline]
pub fn zero_page(page: NonNull<u8>) {
    if WIDE.load(Ordering::Relaxed) {
        zero_wide(page)
    } else {
        zero_words(page)
    }
}

fn zero_words(page: NonNull<u8>) {
    // SAFETY: The caller owns the page; its 512 words are written and nothing else.
    unsafe {
        core::arch::asm!("rep stosq", inout("rdi") page.as_ptr() => _, inout("rcx") 512 => _,
            in("rax") 0, options(nostack, preserves_flags));
    }
}

#[repr(align(32))]
struct Saved([u64; 4]);

fn zero_wide(page: NonNull<u8>) {
    let mut saved = Saved([0; 4]);
    // SAFETY: The caller owns the page; 8 turns of 16 stores of 32 bytes fill it. The register is
    // as before in the end; compiled code uses none of its kind.
    unsafe {
        core::arch::asm!(
            "vmovdqa [{saved}], ymm0",
            "vpxor xmm0, xmm0, xmm0",
            "2:",
            "vmovdqa [{at}], ymm0",
            "vmovdqa [{at} + 32], ymm0",
            "vmovdqa [{at} + 64], ymm0",
            "vmovdqa [{at} + 96], ymm0",
            "vmovdqa [{at} + 128], ymm0",
            "vmovdqa [{at} + 160], ymm0",
            "vmovdqa [{at} + 192], ymm0",
            "vmovdqa [{at} + 224], ymm0",
            "vmovdqa [{at} + 256], ymm0",
            "vmovdqa [{at} + 288], ymm0",
            "vmovdqa [{at} + 320], ymm0",
            "vmovdqa [{at} + 352], ymm0",
            "vmovdqa [{at} + 384], ymm0",
            "vmovdqa [{at} + 416], ymm0",
            "vmovdqa [{at} + 448], ymm0",
            "vmovdqa [{at} + 480], ymm0",
            "add {at}, 512",
            "dec {turns:e}",
            "jnz 2b",
            "vmovdqa ymm0, [{saved}]",
            saved = in(reg) saved.0.as_mut_ptr(),
            at = inout(reg) page.as_ptr() => _,
            turns = inout(reg) 8 => _,
            options(nostack),
        );
    }
}
