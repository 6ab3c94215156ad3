//! Protection keys, of which one is in use: that of execute-only memory.
//!
//! A page-table entry names one of 16 keys. A register of the thread (PKRU) says for each key whether loads
//! and stores are refused, in the kernel's accesses to user memory as well. Programs write that register as
//! they like. It is part of the state that [`super::fpu`] saves and restores.
//!
//! As on Linux a program begins with every key but number 0 refused, and so does a signal handler.

use faultless_mm::Access;

use super::features::{Features, features};

/// PKRU at the start of a program: loads and stores are refused for all keys but 0.
pub const INITIAL: u32 = 0x5555_5554;

/// The key of execute-only memory ([`faultless_mm::Format::execute_only`]).
pub const EXECUTE_ONLY: u32 = 1;

/// Whether CPUs of this architecture may have protection keys.
pub const MAY_BE_USED: bool = true;

/// Whether the CPU has protection keys.
pub fn are_used() -> bool {
    features().contains(Features::KEYS)
}

fn read() -> u32 {
    let rights: u32;
    // SAFETY: CR4.PKE is set wherever keys are used.
    unsafe {
        core::arch::asm!("rdpkru", in("ecx") 0, out("eax") rights, out("edx") _,
            options(nomem, nostack, preserves_flags));
    }
    rights
}

/// Sets the current thread's rights, if there are keys.
pub fn set(rights: u32) {
    if are_used() {
        // SAFETY: As above. Only user memory has keys.
        unsafe {
            core::arch::asm!("wrpkru", in("eax") rights, in("ecx") 0, in("edx") 0,
                options(nostack, preserves_flags));
        }
    }
}

/// Whether the current thread is refused an access to memory with this key.
pub fn refuse(key: u32, access: Access) -> bool {
    if !are_used() {
        return false;
    }
    let rights = read() >> (2 * key);
    match access {
        Access::Read => rights & 1 != 0,
        Access::Write => rights & 3 != 0,
        Access::Execute => false,
    }
}

/// Grants all rights, so that the kernel can write for a program; restores the program's rights on drop.
pub struct Opened(u32);

impl Opened {
    pub fn new() -> Self {
        let before = if are_used() { read() } else { 0 };
        set(0);
        Self(before)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        set(self.0);
    }
}
