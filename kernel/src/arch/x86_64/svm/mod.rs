//! SVM: AMD's hardware for guests, with nested paging. What `kvm` needs of it: whether the CPU has it, turning
//! it on, and entering a guest.
//!
//! Invariants:
//! - A CPU enters a guest only after [`enable_here`] on it.
//! - A guest runs with all ports and nearly all model-specific registers intercepted (`bitmaps`), so nothing
//!   that it does reaches the machine.
//! - One address-space identifier serves all guests: `kvm::flush` asks for a flush whenever another vCPU ran.
//!
//! *Writes*: a flag of this CPU, once; the pages that the CPU saves the kernel's state to.

mod bitmaps;
mod enter;
mod vmcb;

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::percpu::{self, MAX_CPUS};
use super::{msr, paging};
use crate::errno::{ENOMEM, Errno};
use crate::memory::machine::{self, Purpose};

pub use bitmaps::{messages, ports};
pub use enter::{enter, lost_state};
pub use vmcb::{Clean, Control, Intercepts, Save, Segment, Vmcb};

/// `EFER.SVME`.
pub const SVME: u64 = 1 << 12;
const HSAVE: u32 = 0xc001_0117;
/// The register that firmware locks SVM with, and its bit that says that it did.
const VM_CR: u32 = 0xc001_0114;
const DISABLED: u64 = 1 << 4;

/// A CPU's part.
struct Host {
    /// The physical address of two pages: the CPU's own save area, and what `vmsave` keeps of the kernel; 0
    /// before [`prepare`].
    pages: AtomicU64,
    on: AtomicBool,
}

/// What the CPUs offer beyond the least (CPUID 8000000A, EDX).
static OFFERED: AtomicU32 = AtomicU32::new(0);

static HOSTS: [Host; MAX_CPUS] = [const {
    Host {
        pages: AtomicU64::new(0),
        on: AtomicBool::new(false),
    }
}; MAX_CPUS];

/// Whether the CPUs have SVM with nested paging.
pub fn is_there() -> bool {
    if raw_cpuid::cpuid!(0x8000_0000).eax < 0x8000_000a
        || raw_cpuid::cpuid!(0x8000_0001).ecx & 1 << 2 == 0
        || raw_cpuid::cpuid!(0x8000_000a).edx & 1 == 0
    {
        return false;
    }
    msr::read(VM_CR) & DISABLED == 0
}

/// Whether the CPU stores the address of the next instruction when a guest leaves.
pub fn tells_next() -> bool {
    OFFERED.load(Ordering::Relaxed) & 1 << 3 != 0
}

/// How the control block asks for a flush: of the guests' address-space identifier, or, where the CPU cannot do that,
/// of everything.
pub fn flush_command() -> u8 {
    match OFFERED.load(Ordering::Relaxed) & 1 << 6 {
        0 => 1,
        _ => 3,
    }
}

/// Loads debug registers 0 to 3 for a guest. The kernel has no breakpoints of its own, and none while it runs: a
/// guest that leaves turns them off.
pub fn load_breakpoints(to: &[u64; 4]) {
    // SAFETY: Without effect until the guest's control register comes with it.
    unsafe {
        core::arch::asm!("mov dr0, {}", "mov dr1, {}", "mov dr2, {}", "mov dr3, {}",
            in(reg) to[0], in(reg) to[1], in(reg) to[2], in(reg) to[3],
            options(nomem, nostack, preserves_flags));
    }
}

/// Allocates what every CPU needs, before the first guest is made.
///
/// # Errors
/// `ENOMEM`.
pub fn prepare() -> Result<(), Errno> {
    OFFERED.store(raw_cpuid::cpuid!(0x8000_000a).edx, Ordering::Relaxed);
    for host in &HOSTS[..percpu::count() as usize] {
        if host.pages.load(Ordering::Acquire) != 0 {
            continue;
        }
        let pages = machine::allocate_block(1, Purpose::Hypervisor).ok_or(ENOMEM)?;
        let raced = host
            .pages
            .compare_exchange(0, pages, Ordering::AcqRel, Ordering::Relaxed);
        if raced.is_err() {
            machine::free_block(pages, 1);
        }
    }
    Ok(())
}

/// Turns SVM on, on this CPU, if it is off. Returns the physical address of the page for the kernel's own state.
#[inline]
pub fn enable_here() -> u64 {
    let host = &HOSTS[percpu::cpu_number() as usize];
    let pages = host.pages.load(Ordering::Relaxed);
    if !host.on.load(Ordering::Relaxed) {
        msr::write(msr::EFER, msr::read(msr::EFER) | SVME);
        msr::write(HSAVE, pages);
        host.on.store(true, Ordering::Relaxed);
    }
    pages + 4096
}

/// The physical address of a static.
fn physical<T>(of: &'static T) -> u64 {
    paging::image_to_physical(core::ptr::from_ref(of) as u64)
}
