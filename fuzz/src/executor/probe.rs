//! Accesses that may end in a signal, which is then their result.
//!
//! The handler leaves the signal in registers of the access and continues behind it, so that threads
//! share no memory for it.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as arch;
#[cfg(target_arch = "x86_64")]
use x86_64 as arch;

use crate::memory::Signal;

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
    // SAFETY: the kernel passes a valid siginfo and ucontext.
    unsafe {
        let code = (*info).si_code.cast_unsigned();
        let signal = [number as u64, code.into(), (*info).si_addr() as u64];
        if !arch::end_access(&mut *context.cast(), signal) {
            libc::_exit(ELSEWHERE);
        }
    }
}

/// Loads a word.
pub fn load(address: u64) -> Result<u64, Signal> {
    // SAFETY: the executor installs the handler before its first program.
    let (value, signal) = unsafe { arch::load(address) };
    ended(signal).map(|()| value)
}

/// Stores a word.
pub fn store(address: u64, value: u64) -> Result<(), Signal> {
    // SAFETY: as in `load`; programs store only where their own mappings are.
    ended(unsafe { arch::store(address, value) })
}

/// The result of an access with these registers: a signal's number, its code and its address; 0 without one.
fn ended([number, code, address]: [u64; 3]) -> Result<(), Signal> {
    if number == 0 {
        return Ok(());
    }
    Err(Signal {
        number: number as i32,
        code: code as i32,
        address,
    })
}
