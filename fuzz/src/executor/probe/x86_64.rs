//! The accesses on x86-64.

use std::arch::asm;

/// Bytes of one of the instructions.
const LENGTH: usize = 3;

/// Bytes of `mov rax, [rdi]` and `mov [rdi], rax`.
const PROBES: [[u8; LENGTH]; 2] = [[0x48, 0x8b, 0x07], [0x48, 0x89, 0x07]];

/// Continues behind an access with a signal in its registers; returns whether there was an access.
///
/// # Safety
/// The context is that of a signal, whose instruction pointer points to code of at least three bytes.
pub unsafe fn end_access(context: &mut libc::ucontext_t, signal: [u64; 3]) -> bool {
    let registers = &mut context.uc_mcontext.gregs;
    let ip = registers[libc::REG_RIP as usize];
    // SAFETY: the caller's promise.
    let code = unsafe { std::slice::from_raw_parts(ip as usize as *const u8, LENGTH) };
    if !PROBES.iter().any(|probe| code == probe) {
        return false;
    }
    registers[libc::REG_RIP as usize] = ip + LENGTH as i64;
    for (register, value) in [libc::REG_R8, libc::REG_R9, libc::REG_R10]
        .into_iter()
        .zip(signal)
    {
        registers[register as usize] = value.cast_signed();
    }
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
            "mov rax, [rdi]", in("rdi") address, out("rax") value,
            inout("r8") 0u64 => number, inout("r9") 0u64 => code, inout("r10") 0u64 => at,
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
            "mov [rdi], rax", in("rdi") address, in("rax") value,
            inout("r8") 0u64 => number, inout("r9") 0u64 => code, inout("r10") 0u64 => at,
            options(nostack, preserves_flags)
        );
    }
    [number, code, at]
}
