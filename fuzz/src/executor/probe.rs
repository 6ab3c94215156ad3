//! Accesses that may end in a signal, which is then their result.
//!
//! The handler leaves the signal in registers of the access and continues behind it, so that threads
//! share no memory for it.

use std::arch::asm;

use crate::memory::Signal;

/// Bytes of `mov rax, [rdi]` and `mov [rdi], rax`.
const PROBES: [[u8; 3]; 2] = [[0x48, 0x8b, 0x07], [0x48, 0x89, 0x07]];

/// The status of a process that received a signal outside of an access.
const ELSEWHERE: i32 = 99;

/// Installs the handler of these signals for this process.
pub fn install() {
    // SAFETY: a handler that touches its context alone.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}

extern "C" fn on_signal(number: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo and ucontext; the instruction pointer points to
    // code of at least three bytes.
    unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        let registers = &mut context.uc_mcontext.gregs;
        let ip = registers[libc::REG_RIP as usize];
        let code = std::slice::from_raw_parts(ip as usize as *const u8, 3);
        if !PROBES.iter().any(|probe| code == probe) {
            libc::_exit(ELSEWHERE);
        }
        registers[libc::REG_RIP as usize] = ip + 3;
        registers[libc::REG_R8 as usize] = number.into();
        registers[libc::REG_R9 as usize] = (*info).si_code.into();
        registers[libc::REG_R10 as usize] = (*info).si_addr() as i64;
    }
}

/// Loads a word.
pub fn load(address: u64) -> Result<u64, Signal> {
    let (value, number, code, at): (u64, i64, i64, u64);
    // SAFETY: reads any memory; an access that faults ends in the handler.
    unsafe {
        asm!(
            "mov rax, [rdi]", in("rdi") address, out("rax") value,
            inout("r8") 0i64 => number, inout("r9") 0i64 => code, inout("r10") 0u64 => at,
            options(nostack, preserves_flags)
        );
    }
    ended(number, code, at).map(|()| value)
}

/// Stores a word.
pub fn store(address: u64, value: u64) -> Result<(), Signal> {
    let (number, code, at): (i64, i64, u64);
    // SAFETY: programs store only where their own mappings are.
    unsafe {
        asm!(
            "mov [rdi], rax", in("rdi") address, in("rax") value,
            inout("r8") 0i64 => number, inout("r9") 0i64 => code, inout("r10") 0u64 => at,
            options(nostack, preserves_flags)
        );
    }
    ended(number, code, at)
}

fn ended(number: i64, code: i64, address: u64) -> Result<(), Signal> {
    if number == 0 {
        return Ok(());
    }
    Err(Signal {
        number: number as i32,
        code: code as i32,
        address,
    })
}
