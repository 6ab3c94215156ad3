//! The instructions that access user memory. SMAP is lifted around exactly these.

use super::entry::{clac, stac};
use crate::errno::{EFAULT, Errno};

macro_rules! guarded {
    ($instruction:literal) => {
        concat!(
            stac!(),
            "771: ",
            $instruction,
            "\n772:\n",
            clac!(),
            ".pushsection .extable, \"a\", @progbits\n.quad 771b, 773f\n.popsection\n"
        )
    };
}

/// Copies between kernel and user memory; returns whether it copied everything.
///
/// # Safety
/// One side is kernel memory good for `length` bytes, the other side is user memory.
pub unsafe fn copy(to: u64, from: u64, length: usize) -> bool {
    let failed: u64;
    // SAFETY: Faults on the user side go to the fixup; the kernel side is the caller's promise.
    unsafe {
        core::arch::asm!(
            guarded!("rep movsq"),
            "mov rcx, {tail}",
            stac!(),
            "774: rep movsb",
            clac!(),
            "xor {failed:e}, {failed:e}",
            "jmp 775f",
            "773:",
            clac!(),
            "mov {failed:e}, 1",
            "775:",
            ".pushsection .extable, \"a\", @progbits",
            ".quad 774b, 773b",
            ".popsection",
            tail = in(reg) length & 7,
            failed = out(reg) failed,
            inout("rdi") to => _,
            inout("rsi") from => _,
            inout("rcx") length / 8 => _,
            options(nostack),
        );
    }
    failed == 0
}

/// Loads a word.
///
/// # Errors
/// `EFAULT`.
pub fn load(from: u64) -> Result<u32, Errno> {
    let (value, failed): (u32, u32);
    // SAFETY: A fault goes to the fixup.
    unsafe {
        core::arch::asm!(
            guarded!("mov {value:e}, [{from}]"),
            "xor {failed:e}, {failed:e}",
            "jmp 775f",
            "773:",
            clac!(),
            "xor {value:e}, {value:e}",
            "mov {failed:e}, 1",
            "775:",
            value = out(reg) value,
            from = in(reg) from,
            failed = out(reg) failed,
            options(nostack),
        );
    }
    if failed == 0 { Ok(value) } else { Err(EFAULT) }
}

/// Compares and exchanges a word; returns the old value.
///
/// # Errors
/// `EFAULT`.
pub fn exchange(at: u64, expected: u32, new: u32) -> Result<u32, Errno> {
    let (found, failed): (u32, u32);
    // SAFETY: A fault goes to the fixup.
    unsafe {
        core::arch::asm!(
            guarded!("lock cmpxchg [{at}], {new:e}"),
            "xor {failed:e}, {failed:e}",
            "jmp 775f",
            "773:",
            clac!(),
            "mov {failed:e}, 1",
            "775:",
            at = in(reg) at,
            new = in(reg) new,
            inout("eax") expected => found,
            failed = out(reg) failed,
            options(nostack),
        );
    }
    if failed == 0 { Ok(found) } else { Err(EFAULT) }
}
