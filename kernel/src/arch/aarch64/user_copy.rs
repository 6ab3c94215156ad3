//! The instructions that access user memory. They are checked as user mode's own, so that what user mode may not
//! do, the kernel does not do for it. The exchange, of which there is no such form, lifts PAN.

use crate::errno::{EFAULT, Errno};

/// Lists an instruction with its fixup.
macro_rules! guarded {
    ($label:literal, $fixup:literal, $instruction:literal) => {
        concat!(
            $label,
            ": ",
            $instruction,
            "\n.pushsection .extable, \"a\", @progbits\n.quad ",
            $label,
            "b, ",
            $fixup,
            "f\n.popsection\n"
        )
    };
}

/// Copies between kernel and user memory; returns whether it copied everything.
///
/// # Safety
/// One side is kernel memory good for `length` bytes, the other side is user memory.
pub unsafe fn copy(to: u64, from: u64, length: usize) -> bool {
    // The kernel's half has the top bit set.
    // SAFETY: The caller's promise.
    unsafe {
        if (to as i64) < 0 {
            copy_in(to, from, length)
        } else {
            copy_out(to, from, length)
        }
    }
}

/// The fixup label is the same for all; the numbers before are those of the instructions.
macro_rules! copy {
    ($load:expr, $store:expr, $load1:expr, $store1:expr, $to:ident, $from:ident, $length:ident) => {{
        let failed: u64;
        // SAFETY: Faults on the user side go to the fixup; the kernel side is the caller's promise.
        unsafe {
            core::arch::asm!(
                "subs {length}, {length}, #32",
                "b.lo 3f",
                "2:",
                $load,
                $store,
                "add {to}, {to}, #32",
                "add {from}, {from}, #32",
                "subs {length}, {length}, #32",
                "b.hs 2b",
                "3:",
                "adds {length}, {length}, #32",
                "b.eq 5f",
                "4:",
                $load1,
                $store1,
                "add {to}, {to}, #1",
                "add {from}, {from}, #1",
                "subs {length}, {length}, #1",
                "b.ne 4b",
                "5:",
                "mov {failed}, #0",
                "b 775f",
                "773:",
                "mov {failed}, #1",
                "775:",
                to = inout(reg) $to => _,
                from = inout(reg) $from => _,
                length = inout(reg) $length => _,
                a = out(reg) _,
                b = out(reg) _,
                c = out(reg) _,
                d = out(reg) _,
                failed = out(reg) failed,
                options(nostack),
            );
        }
        failed == 0
    }};
}

unsafe fn copy_in(to: u64, from: u64, length: usize) -> bool {
    copy!(
        concat!(
            guarded!("761", "773", "ldtr {a}, [{from}]"),
            guarded!("762", "773", "ldtr {b}, [{from}, #8]"),
            guarded!("763", "773", "ldtr {c}, [{from}, #16]"),
            guarded!("764", "773", "ldtr {d}, [{from}, #24]"),
        ),
        "stp {a}, {b}, [{to}]\nstp {c}, {d}, [{to}, #16]",
        guarded!("765", "773", "ldtrb {a:w}, [{from}]"),
        "strb {a:w}, [{to}]",
        to,
        from,
        length
    )
}

unsafe fn copy_out(to: u64, from: u64, length: usize) -> bool {
    copy!(
        "ldp {a}, {b}, [{from}]\nldp {c}, {d}, [{from}, #16]",
        concat!(
            guarded!("761", "773", "sttr {a}, [{to}]"),
            guarded!("762", "773", "sttr {b}, [{to}, #8]"),
            guarded!("763", "773", "sttr {c}, [{to}, #16]"),
            guarded!("764", "773", "sttr {d}, [{to}, #24]"),
        ),
        "ldrb {a:w}, [{from}]",
        guarded!("765", "773", "sttrb {a:w}, [{to}]"),
        to,
        from,
        length
    )
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
            guarded!("771", "773", "ldtr {value:w}, [{from}]"),
            "mov {failed:w}, #0",
            "b 775f",
            "773:",
            "mov {value:w}, #0",
            "mov {failed:w}, #1",
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
    // SAFETY: A fault goes to the fixup. The two encoded instructions clear and set PAN.
    unsafe {
        core::arch::asm!(
            ".inst 0xd500409f",
            guarded!("771", "773", "casal {found:w}, {new:w}, [{at}]"),
            "mov {failed:w}, #0",
            "b 775f",
            "773:",
            "mov {failed:w}, #1",
            "775:",
            ".inst 0xd500419f",
            at = in(reg) at,
            new = in(reg) new,
            found = inout(reg) expected => found,
            failed = out(reg) failed,
            options(nostack),
        );
    }
    if failed == 0 { Ok(found) } else { Err(EFAULT) }
}
