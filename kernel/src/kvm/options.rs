//! How guests of this machine work: Linux's parameters of its module, set at boot by the run file.

use core::sync::atomic::{AtomicBool, Ordering};

use faultless_tdp::Options;

static TDP_MMU: AtomicBool = AtomicBool::new(true);
static FAST_PAGE_FAULT: AtomicBool = AtomicBool::new(true);

/// Sets parameters: words `NAME=Y` or `NAME=N`, with spaces between them. Without effect on guests that exist.
///
/// # Errors
/// A line that says what is wrong.
pub fn set(words: &str) -> Result<(), &'static str> {
    for word in words.split(' ').filter(|word| !word.is_empty()) {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let is_on = match value {
            "Y" => true,
            "N" => false,
            _ => return Err("a parameter in `kvm=` is neither Y nor N"),
        };
        match name {
            "tdp_mmu" => TDP_MMU.store(is_on, Ordering::Relaxed),
            "fast_page_fault" => FAST_PAGE_FAULT.store(is_on, Ordering::Relaxed),
            // The CPU's own bits are always in use.
            "ad" if is_on => {}
            _ => return Err("`kvm=` has a parameter that is not known"),
        }
    }
    Ok(())
}

/// The parameters.
pub fn get() -> Options {
    Options {
        tdp_mmu: TDP_MMU.load(Ordering::Relaxed),
        fast_page_fault: FAST_PAGE_FAULT.load(Ordering::Relaxed),
    }
}
