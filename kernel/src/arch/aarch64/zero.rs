//! Filling pages with zeroes, half of what a fault costs.

use core::ptr::NonNull;

use super::features::zero_block;

/// Fills a page with zeroes: by cache blocks where the CPU has the instruction for it.
#[inline]
pub fn zero_page(page: NonNull<u8>) {
    let block = zero_block();
    // SAFETY: The caller owns the page; its 4096 bytes are written and nothing else.
    unsafe {
        if block == 64 {
            core::arch::asm!(
                "2:",
                "dc zva, {at}",
                "add {other}, {at}, #64",
                "dc zva, {other}",
                "add {other}, {at}, #128",
                "dc zva, {other}",
                "add {other}, {at}, #192",
                "dc zva, {other}",
                "add {at}, {at}, #256",
                "cmp {at}, {end}",
                "b.ne 2b",
                at = inout(reg) page.as_ptr() => _,
                other = out(reg) _,
                end = in(reg) page.as_ptr().add(4096),
                options(nostack),
            );
        } else {
            core::arch::asm!(
                "2:",
                "stp xzr, xzr, [{at}]",
                "stp xzr, xzr, [{at}, #16]",
                "stp xzr, xzr, [{at}, #32]",
                "stp xzr, xzr, [{at}, #48]",
                "add {at}, {at}, #64",
                "cmp {at}, {end}",
                "b.ne 2b",
                at = inout(reg) page.as_ptr() => _,
                end = in(reg) page.as_ptr().add(4096),
                options(nostack),
            );
        }
    }
}
