//! How guests work: the parameters of `kvm`, set once at boot by the run file (`./x run --kvm=tdp_mmu=N`).

use core::sync::atomic::{AtomicBool, Ordering};

use faultless_tdp::Options;

/// The TDP MMU, rather than the legacy one.
pub static TDP_MMU: AtomicBool = AtomicBool::new(true);
/// Faults that only restore access take the fast path.
pub static FAST_PAGE_FAULT: AtomicBool = AtomicBool::new(true);
/// Huge entries are split when logging begins, rather than when they are written.
pub static EAGER_PAGE_SPLIT: AtomicBool = AtomicBool::new(true);
/// Accessed bits of nested entries are used, rather than faults.
pub static ACCESSED_BITS: AtomicBool = AtomicBool::new(true);
/// The same for dirty bits.
pub static DIRTY_BITS: AtomicBool = AtomicBool::new(false);

/// Sets parameters: words `NAME=Y` and `NAME=N`.
///
/// # Errors
/// A line that says what is wrong.
pub fn set(text: &[u8]) -> Result<(), &'static str> {
    for word in text
        .split(|&byte| byte == b' ')
        .filter(|word| !word.is_empty())
    {
        let (name, is_on) = match word {
            [name @ .., b'=', b'Y'] => (name, true),
            [name @ .., b'=', b'N'] => (name, false),
            _ => return Err("a parameter in `kvm=` is neither Y nor N"),
        };
        let parameter = match name {
            b"tdp_mmu" => &TDP_MMU,
            b"fast_page_fault" => &FAST_PAGE_FAULT,
            b"eager_page_split" => &EAGER_PAGE_SPLIT,
            b"accessed_bits" => &ACCESSED_BITS,
            b"dirty_bits" => &DIRTY_BITS,
            _ => return Err("a parameter in `kvm=` is unknown"),
        };
        parameter.store(is_on, Ordering::Relaxed);
    }
    Ok(())
}

/// The options of a new guest's memory.
pub fn options() -> Options {
    Options {
        tdp_mmu: TDP_MMU.load(Ordering::Relaxed),
        fast_page_fault: FAST_PAGE_FAULT.load(Ordering::Relaxed),
        eager_page_split: EAGER_PAGE_SPLIT.load(Ordering::Relaxed),
        accessed_bits: ACCESSED_BITS.load(Ordering::Relaxed),
        dirty_bits: DIRTY_BITS.load(Ordering::Relaxed),
    }
}
