//! The accesses on AArch64.

use std::arch::asm;

/// `ldr x0, [x1]` and `str x0, [x1]`.
const PROBES: [u32; 2] = [0xf940_0020, 0xf900_0020];

/// The first of the registers that receive the signal.
const SIGNAL: usize = 9;

/// Continues behind an access with a signal in its registers; returns whether there was an access.
///
/// # Safety
/// The context is that of a signal, whose program counter points to an instruction.
pub unsafe fn end_access(context: &mut libc::ucontext_t, signal: [u64; 3]) -> bool {
    let state = &mut context.uc_mcontext;
    // SAFETY: the caller's promise.
    let instruction = unsafe { *(state.pc as *const u32) };
    if !PROBES.contains(&instruction) {
        return false;
    }
    state.pc += 4;
    state.regs[SIGNAL..SIGNAL + 3].copy_from_slice(&signal);
    true
}

/// Loads a word; also returns the signal.
///
/// # Safety
/// The handler is installed.
pub unsafe fn load(address: u64) -> (u64, [u64; 3]) {
    let (value, number, code, at): (u64, u64, u64, u64);
    // SAFETY: reads any memory; an access that faults ends in the handler.
    unsafe {
        asm!(
            "ldr x0, [x1]", in("x1") address, out("x0") value,
            inout("x9") 0u64 => number, inout("x10") 0u64 => code, inout("x11") 0u64 => at,
            options(nostack, preserves_flags)
        );
    }
    (value, [number, code, at])
}

/// Stores a word; returns the signal.
///
/// # Safety
/// The handler is installed, and nothing else uses the word.
pub unsafe fn store(address: u64, value: u64) -> [u64; 3] {
    let (number, code, at): (u64, u64, u64);
    // SAFETY: the caller's promise; an access that faults ends in the handler.
    unsafe {
        asm!(
            "str x0, [x1]", in("x1") address, in("x0") value,
            inout("x9") 0u64 => number, inout("x10") 0u64 => code, inout("x11") 0u64 => at,
            options(nostack, preserves_flags)
        );
    }
    [number, code, at]
}
