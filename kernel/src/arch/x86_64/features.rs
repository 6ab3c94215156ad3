//! Detects CPU features and turns them on.
//!
//! Every CPU calls `enable`; the boot CPU decides (`detect`) and patches the code that depends on
//! SMAP before its pages become read-only.

use core::sync::atomic::{AtomicU32, Ordering};

use bitflags::bitflags;
use raw_cpuid::CpuId;

use super::msr;

bitflags! {
    /// Features that the kernel makes use of.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct Features: u32 {
        const NO_EXECUTE = 1 << 0;
        const SMEP = 1 << 1;
        const SMAP = 1 << 2;
        const UMIP = 1 << 3;
        const XSAVE = 1 << 4;
        const X2APIC = 1 << 5;
        const GIGABYTE_PAGES = 1 << 6;
        const RDRAND = 1 << 7;
        const KEYS = 1 << 8;
    }
}

static FEATURES: AtomicU32 = AtomicU32::new(0);

/// The features that `detect` found.
pub fn features() -> Features {
    Features::from_bits_truncate(FEATURES.load(Ordering::Relaxed))
}

/// Detects the features by CPUID.
pub fn detect() -> Features {
    let cpuid = CpuId::new();
    let basic = cpuid.get_feature_info();
    let extended = cpuid.get_extended_feature_info();
    let identity = cpuid.get_extended_processor_and_feature_identifiers();
    let mut found = Features::empty();
    if let Some(basic) = basic {
        found.set(Features::XSAVE, basic.has_xsave());
        found.set(Features::X2APIC, basic.has_x2apic());
        found.set(Features::RDRAND, basic.has_rdrand());
    }
    if let Some(extended) = extended {
        found.set(Features::SMEP, extended.has_smep());
        found.set(Features::SMAP, extended.has_smap());
        found.set(Features::UMIP, extended.has_umip());
        // PKRU is saved with the XSAVE state.
        let keys = extended.has_pku() && found.contains(Features::XSAVE);
        found.set(Features::KEYS, keys && super::fpu::offers_keys());
    }
    if let Some(identity) = identity {
        found.set(Features::NO_EXECUTE, identity.has_execute_disable());
        found.set(Features::GIGABYTE_PAGES, identity.has_1gib_pages());
    }
    FEATURES.store(found.bits(), Ordering::Relaxed);
    found
}

/// Turns the features on, on this CPU.
pub fn enable() {
    use x86_64::registers::control::{Cr0, Cr0Flags, Cr4, Cr4Flags};
    let features = features();
    // System calls, execute-disable (without which the kernel does not run).
    msr::write(msr::EFER, msr::read(msr::EFER) | 1 | 1 << 11);
    let mut cr4 = Cr4::read()
        | Cr4Flags::PAGE_GLOBAL
        | Cr4Flags::OSFXSR
        | Cr4Flags::OSXMMEXCPT_ENABLE
        | Cr4Flags::MACHINE_CHECK_EXCEPTION;
    cr4.set(
        Cr4Flags::SUPERVISOR_MODE_EXECUTION_PROTECTION,
        features.contains(Features::SMEP),
    );
    cr4.set(
        Cr4Flags::SUPERVISOR_MODE_ACCESS_PREVENTION,
        features.contains(Features::SMAP),
    );
    cr4.set(
        Cr4Flags::USER_MODE_INSTRUCTION_PREVENTION,
        features.contains(Features::UMIP),
    );
    cr4.set(Cr4Flags::OSXSAVE, features.contains(Features::XSAVE));
    cr4.set(
        Cr4Flags::PROTECTION_KEY_USER,
        features.contains(Features::KEYS),
    );
    let mut cr0 = Cr0::read();
    cr0.remove(Cr0Flags::EMULATE_COPROCESSOR | Cr0Flags::TASK_SWITCHED);
    cr0.remove(Cr0Flags::CACHE_DISABLE | Cr0Flags::NOT_WRITE_THROUGH);
    cr0.insert(Cr0Flags::MONITOR_COPROCESSOR | Cr0Flags::NUMERIC_ERROR);
    cr0.insert(Cr0Flags::WRITE_PROTECT | Cr0Flags::ALIGNMENT_MASK);
    // SAFETY: Each bit is set only if the CPU has the feature; the kernel never touches user
    // memory but between `stac` and `clac`, and never executes it.
    unsafe {
        Cr0::write(cr0);
        Cr4::write(cr4);
    }
}

unsafe extern "C" {
    static __smap_sites_start: [u64; 2];
    static __smap_sites_end: [u64; 2];
}

/// Writes `clac` and `stac` at the sites that the code reserves for them.
///
/// # Safety
/// The boot tables are in use (text is writable), and no other CPU runs.
pub unsafe fn patch_smap() {
    if !features().contains(Features::SMAP) {
        return;
    }
    let mut site = &raw const __smap_sites_start;
    while site < &raw const __smap_sites_end {
        // SAFETY: The linker script bounds the table; each entry is an address of three bytes of
        // padding in the text, and what to put there.
        unsafe {
            let [at, allow] = *site;
            let last = if allow == 1 { 0xcb } else { 0xca };
            (at as *mut [u8; 3]).write_volatile([0x0f, 0x01, last]);
            site = site.add(1);
        }
    }
}
