//! `/sys/module/kvm` and `/sys/module/kvm_amd`: the parameters of Linux's modules, as far as they mean something
//! here. They are there if the machine can run guests, and nothing changes them.

use core::sync::atomic::Ordering;

use super::proc::Text;
use super::sys::{file, folder, number};
use super::tree;
use crate::errno::Errno;
use crate::kvm::{self, parameters};

fn truth(is_on: bool) -> Result<Text, Errno> {
    let mut text = Text::new();
    text.line(format_args!("{}", if is_on { 'Y' } else { 'N' }))?;
    Ok(text)
}

/// Makes the directories.
///
/// # Errors
/// `ENOMEM`.
pub fn build() -> Result<(), Errno> {
    if !kvm::is_there() {
        return Ok(());
    }
    let module = folder(&folder(&tree::root(), b"sys")?, b"module")?;
    let general = folder(&folder(&module, b"kvm")?, b"parameters")?;
    for (name, is_on) in [
        (
            "eager_page_split",
            parameters::EAGER_PAGE_SPLIT.load(Ordering::Relaxed),
        ),
        ("enable_pmu", false),
        ("ignore_msrs", false),
        ("nx_huge_pages", false),
        ("tdp_mmu", parameters::TDP_MMU.load(Ordering::Relaxed)),
        // Linux has no such parameter: it cannot leave the fast path.
        (
            "fast_page_fault",
            parameters::FAST_PAGE_FAULT.load(Ordering::Relaxed),
        ),
    ] {
        file(&general, name.as_bytes(), 0o444, truth(is_on)?)?;
    }
    file(&general, b"force_emulation_prefix", 0o444, number(0)?)?;
    let own = folder(&folder(&module, b"kvm_amd")?, b"parameters")?;
    for (name, is_on) in [
        ("avic", false),
        ("npt", true),
        ("sev", false),
        ("sev_es", false),
    ] {
        file(&own, name.as_bytes(), 0o444, truth(is_on)?)?;
    }
    file(&own, b"nested", 0o444, number(0)?)
}
