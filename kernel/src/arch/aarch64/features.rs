//! Detects CPU features and turns them on. Every CPU calls `enable`; the boot CPU decides (`detect`).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bitflags::bitflags;

use super::paging::{Entries, TCR_HA, TCR_HD};
use super::start_info::Choices;
use super::sysreg::{isb, read_sysreg, write_sysreg};

bitflags! {
    /// Features that the kernel makes use of.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct Features: u32 {
        /// Atomic instructions (Armv8.1).
        const ATOMICS = 1 << 0;
        /// Privileged access never (Armv8.1).
        const PAN = 1 << 1;
        /// Hardware sets the accessed bit.
        const ACCESSED = 1 << 2;
        /// Hardware marks written pages.
        const DIRTY = 1 << 3;
        /// Random numbers.
        const RNDR = 1 << 4;
        /// PAN holds for memory that user mode may only execute, too (EPAN; Armv8.7): there is such memory.
        const EXECUTE_ONLY = 1 << 5;
    }
}

/// SCTLR_EL1: PAN holds for execute-only memory of user mode, too.
const SCTLR_EPAN: u64 = 1 << 57;

static FEATURES: AtomicU32 = AtomicU32::new(0);
static CAPABILITIES: AtomicU64 = AtomicU64::new(0);
/// Bytes that DC ZVA zeroes; 0: it may not be used.
static ZERO_BLOCK: AtomicU32 = AtomicU32::new(0);

/// The features that `detect` found.
pub fn features() -> Features {
    Features::from_bits_truncate(FEATURES.load(Ordering::Relaxed))
}

/// Bytes that DC ZVA zeroes; 0: it may not be used.
#[inline]
pub fn zero_block() -> u32 {
    ZERO_BLOCK.load(Ordering::Relaxed)
}

/// The value of AT_HWCAP.
pub fn hardware_capabilities() -> u64 {
    CAPABILITIES.load(Ordering::Relaxed)
}

/// A field of an identification register: 0 means that the feature is absent.
fn field(register: u64, shift: u32) -> u64 {
    register >> shift & 15
}

/// Detects the features by the identification registers.
pub fn detect(choices: Choices) -> Features {
    let isar0 = read_sysreg!("id_aa64isar0_el1");
    let mmfr1 = read_sysreg!("id_aa64mmfr1_el1");
    let mut found = Features::empty();
    found.set(Features::ATOMICS, field(isar0, 20) >= 2);
    found.set(Features::PAN, field(mmfr1, 20) >= 1);
    found.set(Features::EXECUTE_ONLY, field(mmfr1, 20) >= 3);
    Entries::choose_execute_only(found.contains(Features::EXECUTE_ONLY));
    let marks = match choices.software_marks {
        true => 0,
        false => field(mmfr1, 0),
    };
    found.set(Features::ACCESSED, marks >= 1);
    found.set(Features::DIRTY, marks >= 2);
    found.set(Features::RNDR, field(isar0, 60) >= 1);
    FEATURES.store(found.bits(), Ordering::Relaxed);
    CAPABILITIES.store(capabilities(isar0), Ordering::Relaxed);
    let zero = read_sysreg!("dczid_el0");
    let is_forbidden = zero & 1 << 4 != 0;
    let size = if is_forbidden { 0 } else { 4 << (zero & 15) };
    ZERO_BLOCK.store(size, Ordering::Relaxed);
    found
}

/// Linux's HWCAP bits: those of instructions that need no support by the kernel but the vector registers'.
fn capabilities(isar0: u64) -> u64 {
    let pfr0 = read_sysreg!("id_aa64pfr0_el1");
    let isar1 = read_sysreg!("id_aa64isar1_el1");
    let mmfr2 = read_sysreg!("id_aa64mmfr2_el1");
    let floating = field(pfr0, 16);
    let vectors = field(pfr0, 20);
    let has = |register, shift, least| field(register, shift) >= least;
    let all = [
        (0, floating != 15),
        (1, vectors != 15),
        (3, has(isar0, 4, 1)),
        (4, has(isar0, 4, 2)),
        (5, has(isar0, 8, 1)),
        (6, has(isar0, 12, 1)),
        (7, has(isar0, 16, 1)),
        (8, has(isar0, 20, 2)),
        (9, floating == 1),
        (10, vectors == 1),
        (12, has(isar0, 28, 1)),
        (13, has(isar1, 12, 1)),
        (14, has(isar1, 16, 1)),
        (15, has(isar1, 20, 1)),
        (16, has(isar1, 0, 1)),
        (17, has(isar0, 32, 1)),
        (18, has(isar0, 36, 1)),
        (19, has(isar0, 40, 1)),
        (20, has(isar0, 44, 1)),
        (21, has(isar0, 12, 2)),
        (23, has(isar0, 48, 1)),
        (24, has(pfr0, 48, 1)),
        (25, has(mmfr2, 32, 1)),
        (26, has(isar1, 20, 2)),
        (27, has(isar0, 52, 1)),
        (29, has(isar1, 36, 1)),
    ];
    all.iter()
        .filter(|(_, is_there)| *is_there)
        .fold(0, |bits, (bit, _)| bits | 1 << bit)
}

/// Turns the features on for this CPU.
pub fn enable() {
    let mut control = read_sysreg!("tcr_el1");
    if features().contains(Features::ACCESSED) {
        control |= TCR_HA;
    }
    if features().contains(Features::DIRTY) {
        control |= TCR_HD;
    }
    let mut system = read_sysreg!("sctlr_el1");
    if features().contains(Features::EXECUTE_ONLY) {
        system |= SCTLR_EPAN;
    }
    let has_counters = !matches!(field(read_sysreg!("id_aa64dfr0_el1"), 8), 0 | 15);
    let has_activity = field(read_sysreg!("id_aa64pfr0_el1"), 44) != 0;
    // SAFETY: These bits change how accesses are recorded in entries, and what user mode may read: the virtual
    // counter, floating-point and vector registers.
    unsafe {
        write_sysreg!("tcr_el1", control);
        write_sysreg!("sctlr_el1", system);
        write_sysreg!("cpacr_el1", 0b11u64 << 20);
        write_sysreg!("cntkctl_el1", 1u64 << 1);
        // No debug communication channel for user mode; the OS lock, which forbids steps, is off.
        write_sysreg!("mdscr_el1", 1u64 << 12);
        write_sysreg!("osdlr_el1", 0u64);
        write_sysreg!("oslar_el1", 0u64);
        // No counters of events, where there are any.
        if has_counters {
            write_sysreg!("pmuserenr_el0", 0u64);
        }
        if has_activity {
            write_sysreg!("s3_3_c13_c2_3", 0u64);
        }
        // PAN: from here on, and after each entry.
        core::arch::asm!(".inst 0xd500419f", options(nostack, preserves_flags));
    }
    isb();
}
