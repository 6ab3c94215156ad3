//! The state of the floating-point and vector units.
//!
//! The kernel is compiled without them, so the registers always hold the state of the thread that runs (or
//! ran last) here. It is saved and restored when a CPU switches threads, and for signals; never on a fault or
//! a system call.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::features::{Features, features};
use super::protection_keys;

/// Room for x87, SSE, AVX and AVX-512 in XSAVE's standard format.
pub const AREA_SIZE: usize = 2752;
const HEADER: usize = 512;
const MXCSR: usize = 24;
/// The end of the x87 registers.
const REGISTERS_END: usize = 160;
const SOFTWARE: usize = 464;
const MAGIC_1: u32 = 0x4650_5853;
/// Ends the state in a signal frame.
pub const MAGIC_2: u32 = 0x4650_5845;

/// The XSAVE components of x87 and of SSE, in the first byte of the header.
const X87: u8 = 1;
const SSE: u8 = 2;
/// The XSAVE component of protection-key rights (PKRU).
const KEYS: u64 = 1 << 9;
/// The offset of that component in the state.
static KEYS_AT: AtomicU32 = AtomicU32::new(0);

/// The state components in use (XCR0); 0 without XSAVE.
static COMPONENTS: AtomicU64 = AtomicU64::new(0);
/// Bytes of state in use.
static SIZE: AtomicU32 = AtomicU32::new(512);

/// Saved state.
#[repr(C, align(64))]
#[derive(Clone)]
pub struct Area(pub [u8; AREA_SIZE]);

impl Area {
    /// The state in which a program begins, but for the rights of protection keys.
    const fn cleared() -> Self {
        let mut bytes = [0; AREA_SIZE];
        bytes[0] = 0x7f; // x87 control word 0x37f
        bytes[1] = 0x03;
        bytes[MXCSR] = 0x80; // 0x1f80
        bytes[MXCSR + 1] = 0x1f;
        Self(bytes)
    }

    /// The state in which a program begins.
    pub fn initial() -> Self {
        let mut area = Self::cleared();
        area.set_keys();
        area
    }

    /// Sets the rights of protection keys to those with which a program begins.
    fn set_keys(&mut self) {
        if COMPONENTS.load(Ordering::Relaxed) & KEYS != 0 {
            let at = KEYS_AT.load(Ordering::Relaxed) as usize;
            self.0[HEADER + 1] |= (KEYS >> 8) as u8;
            self.0[at..at + 4].copy_from_slice(&protection_keys::INITIAL.to_le_bytes());
        }
    }
}

/// The state of a guest, which has no keys: the kernel's accesses for the program need some meanwhile.
impl Area {
    /// Sets the rights of protection keys to those that the kernel has beside a guest.
    pub fn keep_kernel_keys(&mut self) {
        self.set_keys();
    }
}

/// Whether the rights of protection keys can be saved with the rest.
pub fn offers_keys() -> bool {
    let (offered, place) = (raw_cpuid::cpuid!(0xd, 0).eax, raw_cpuid::cpuid!(0xd, 9));
    u64::from(offered) & KEYS != 0 && (place.ebx + place.eax) as usize <= AREA_SIZE
}

/// Loads the state in which a program begins.
pub fn reset() {
    restore(&const { Area::cleared() });
    protection_keys::set(protection_keys::INITIAL);
}

/// Bytes of state in use.
pub fn size() -> usize {
    SIZE.load(Ordering::Relaxed) as usize
}

/// Chooses the components (boot CPU) and turns them on (every CPU).
pub fn enable(boot: bool) {
    if !features().contains(Features::XSAVE) {
        return;
    }
    if boot {
        let cpuid = raw_cpuid::CpuId::new();
        let offered = cpuid.get_extended_state_info().map_or(3, |_| {
            let leaf = raw_cpuid::cpuid!(0xd, 0);
            u64::from(leaf.eax) | u64::from(leaf.edx) << 32
        });
        let mut components = 0b11 | offered & 0b100;
        if offered & 0xe4 == 0xe4 {
            components |= 0xe0;
        }
        if features().contains(Features::KEYS) {
            components |= KEYS;
            KEYS_AT.store(raw_cpuid::cpuid!(0xd, 9).ebx, Ordering::Relaxed);
        }
        set_components(components);
        let mut size = raw_cpuid::cpuid!(0xd, 0).ebx;
        if size as usize > AREA_SIZE {
            components &= 0b111 | KEYS;
            set_components(components);
            size = raw_cpuid::cpuid!(0xd, 0).ebx;
        }
        COMPONENTS.store(components, Ordering::Relaxed);
        // AVX-512 would lose the upper half of the register that zeroing saves.
        if components & !KEYS == 0b111 {
            super::zero::use_wide_stores();
        }
        SIZE.store(size, Ordering::Relaxed);
    } else {
        set_components(COMPONENTS.load(Ordering::Relaxed));
    }
}

/// The components of the kernel's, and so of guests; 0 without `XSAVE`.
pub fn components() -> u64 {
    COMPONENTS.load(Ordering::Relaxed)
}

/// Makes these components those that instructions of a guest use and see. The CPU has them.
#[inline]
pub fn choose(chosen: u64) {
    if chosen != components() {
        set_components(chosen);
    }
}

/// Makes all components of the kernel's those in use again. Returns those that were.
#[inline]
pub fn choose_all() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: As for `xsetbv`; nothing is written.
    unsafe {
        core::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags));
    }
    let chosen = u64::from(low) | u64::from(high) << 32;
    if chosen != components() {
        set_components(components());
    }
    chosen
}

fn set_components(components: u64) {
    // SAFETY: The CPU offers each of them, and CR4.OSXSAVE is set.
    unsafe {
        core::arch::asm!("xsetbv", in("ecx") 0, in("eax") components as u32,
            in("edx") (components >> 32) as u32, options(nostack, preserves_flags));
    }
}

/// Saves the registers.
///
/// X87 state that is as `fninit` leaves it is marked so, which most CPUs do themselves. QEMU 7.2 does not, and a
/// load of that state then writes to a word of the *first* CPU, without a lock. In that word is whether the first
/// CPU is in a guest, so a guest's state can be lost (`svm::lost_state`). A load of state marked so does not write.
pub fn save(area: &mut Area) {
    let at = area.0.as_mut_ptr();
    // SAFETY: The area is aligned and large enough for the components chosen.
    unsafe {
        if COMPONENTS.load(Ordering::Relaxed) != 0 {
            core::arch::asm!("xsave64 [{}]", in(reg) at, in("eax") u32::MAX, in("edx") u32::MAX,
                options(nostack, preserves_flags));
            if is_initial_x87(area) {
                area.0[HEADER] &= !X87;
            }
        } else {
            core::arch::asm!("fxsave64 [{}]", in(reg) at, options(nostack, preserves_flags));
        }
    }
}

/// Whether x87 state is that after a reset.
fn is_initial_x87(area: &Area) -> bool {
    const CONTROL: u64 = 0x37f;
    let words = area.0[..REGISTERS_END].as_chunks::<8>().0;
    // The word at 24 is MXCSR and its mask. Without a branch for each word: mostly all are zero.
    let others = words[1..3].iter().chain(&words[4..]);
    let any = others.fold(0, |any, &word| any | u64::from_le_bytes(word));
    words[0] == CONTROL.to_le_bytes() && any == 0
}

/// Loads the registers from state that the CPU saved or [`check`] accepted.
pub fn restore(area: &Area) {
    let at = area.0.as_ptr();
    // SAFETY: As above; the content is valid, so that loading it does not fault.
    unsafe {
        if COMPONENTS.load(Ordering::Relaxed) != 0 {
            core::arch::asm!("xrstor64 [{}]", in(reg) at, in("eax") u32::MAX, in("edx") u32::MAX,
                options(nostack, preserves_flags, readonly));
        } else {
            core::arch::asm!("fxrstor64 [{}]", in(reg) at,
                options(nostack, preserves_flags, readonly));
        }
    }
}

fn word(area: &Area, at: usize) -> u32 {
    u32::from_le_bytes([area.0[at], area.0[at + 1], area.0[at + 2], area.0[at + 3]])
}

fn long(area: &Area, at: usize) -> u64 {
    u64::from(word(area, at)) | u64::from(word(area, at + 4)) << 32
}

/// Describes the state as Linux does, in the bytes that are left to software.
pub fn describe_for_signal(area: &mut Area) {
    area.0[SOFTWARE..HEADER].fill(0);
    if COMPONENTS.load(Ordering::Relaxed) == 0 {
        return;
    }
    // The legacy part is always there, for handlers that do not look.
    area.0[HEADER] |= X87 | SSE;
    let size = size() as u32;
    let mut put = |at: usize, bytes: &[u8]| area.0[at..at + bytes.len()].copy_from_slice(bytes);
    put(SOFTWARE, &MAGIC_1.to_le_bytes());
    put(SOFTWARE + 4, &(size + 4).to_le_bytes());
    put(
        SOFTWARE + 8,
        &COMPONENTS.load(Ordering::Relaxed).to_le_bytes(),
    );
    put(SOFTWARE + 16, &size.to_le_bytes());
}

/// Whether the state, as it comes back from a signal handler, has the extended part.
pub fn is_extended(area: &Area) -> bool {
    COMPONENTS.load(Ordering::Relaxed) != 0
        && word(area, SOFTWARE) == MAGIC_1
        && word(area, SOFTWARE + 16) as usize == size()
}

/// Makes state from a program loadable; false if it asks for something that does not exist.
pub fn check(area: &mut Area, extended: bool) -> bool {
    let components = COMPONENTS.load(Ordering::Relaxed);
    // A mask of 0 stands for the default mask.
    let mask = match word(area, MXCSR + 4) {
        0 => 0xffbf,
        _ => 0xffff,
    };
    if word(area, MXCSR) & !mask != 0 {
        return false;
    }
    if components == 0 {
        return true;
    }
    if !extended {
        area.0[HEADER..].fill(0);
        area.0[HEADER] = X87 | SSE;
        area.set_keys();
        return true;
    }
    long(area, HEADER) & !components == 0
        && area.0[HEADER + 8..HEADER + 64]
            .iter()
            .all(|&byte| byte == 0)
}

/// The si_code of an x87 or SSE exception, from the registers.
pub fn error_code(vector_unit: bool) -> i32 {
    use linux_raw_sys::general as linux;
    let raised = if vector_unit {
        let mut mxcsr = 0u32;
        // SAFETY: Stores four bytes to a local.
        unsafe {
            core::arch::asm!("stmxcsr [{}]", in(reg) &raw mut mxcsr,
                options(nostack, preserves_flags));
        }
        !(mxcsr >> 7) & mxcsr
    } else {
        let (mut control, status): (u16, u16) = (0, {
            let status: u16;
            // SAFETY: Reads the status word without waiting.
            unsafe { core::arch::asm!("fnstsw ax", out("ax") status, options(nomem, nostack)) };
            status
        });
        // SAFETY: Stores two bytes to a local.
        unsafe {
            core::arch::asm!("fnstcw [{}]", in(reg) &raw mut control,
                options(nostack, preserves_flags));
        }
        u32::from(!control & status)
    };
    let code = match raised {
        raised if raised & 0x01 != 0 => linux::FPE_FLTINV,
        raised if raised & 0x04 != 0 => linux::FPE_FLTDIV,
        raised if raised & 0x08 != 0 => linux::FPE_FLTOVF,
        raised if raised & 0x12 != 0 => linux::FPE_FLTUND,
        raised if raised & 0x20 != 0 => linux::FPE_FLTRES,
        _ => 0,
    };
    code as i32
}
