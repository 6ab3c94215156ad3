//! Atomic instructions of programs: on absent memory they fault as loads first, and would fault a second time as
//! stores. The kernel looks at the instruction, and if it is one ([`faultless_mm::rmw`]), resolves the first fault as
//! a store (Y. Shi, "arm64: mm: force write fault for atomic RMW instructions", 2024).
//!
//! - **The look cannot fault.** The hardware translates the program counter as for a load by the kernel (`AT S1E1R`),
//!   which ignores what user mode may read, and takes no exception: execute-only text costs nothing more. The word is
//!   read through the direct map. If another thread unmaps the text meanwhile, the word is that of some other use of
//!   the frame, and at worst a load is taken for a store, which the mapping allows.
//! - **A loop of loads is looked at once.** Each CPU remembers where the last plain load was, until it takes another
//!   space. If a program changes that instruction to an atomic one, it faults twice until a load elsewhere faults.
//!
//! *Writes*: this CPU's word.

use core::sync::atomic::{AtomicBool, Ordering};

use super::paging::{physical_to_virtual, translate};
use super::percpu;

/// Whether a read fault may come from an instruction that also stores.
pub const READS_MAY_WRITE: bool = true;

/// Whether the kernel looks (`atomic-rmw=` in the run file).
static ON: AtomicBool = AtomicBool::new(true);

/// Sets whether the kernel looks at instructions.
///
/// # Errors
/// None here.
pub fn choose(on: bool) -> Result<(), &'static str> {
    ON.store(on, Ordering::Relaxed);
    Ok(())
}

/// Whether the faulting instruction of the current thread will store.
#[inline]
pub fn will_write() -> bool {
    let cpu = percpu::this();
    let Some(thread) = percpu::current() else {
        return false;
    };
    // SAFETY: The thread runs, and its frame was saved when it faulted.
    let pc = unsafe { (*thread.frame()).fast.pc };
    if cpu.scratch.load(Ordering::Relaxed) == pc || !ON.load(Ordering::Relaxed) {
        return false;
    }
    match instruction(pc) {
        Some(instruction) if faultless_mm::rmw::is_atomic_rmw(instruction) => true,
        Some(_) => {
            cpu.scratch.store(pc, Ordering::Relaxed);
            false
        }
        None => false,
    }
}

/// Forgets where the last plain load was: another program has another instruction there.
pub fn forget() {
    percpu::this().scratch.store(0, Ordering::Relaxed);
}

/// The instruction at a user address; `None`: no memory is mapped there, or not any more.
fn instruction(pc: u64) -> Option<u32> {
    // Otherwise the fetch would have faulted, and the word could lie in two pages.
    if !pc.is_multiple_of(4) || pc >= crate::memory::USER_END {
        return None;
    }
    let at = physical_to_virtual(translate(pc)?).cast::<u32>();
    // SAFETY: Normal memory, which the direct map has all of; any word is a value.
    Some(u32::from_le(unsafe { at.read_volatile() }))
}
