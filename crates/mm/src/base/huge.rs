//! Where huge pages are used: the machine's settings, with Linux's names and meanings.
//!
//! *Writes*: the settings, when they are set.

use faultless_sync::atomic::{AtomicU32, Ordering};
use faultless_trace::Detours;

/// Which mappings get huge pages (Linux: `/sys/kernel/mm/transparent_hugepage/enabled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum HugeMode {
    /// None.
    #[default]
    Never,
    /// Those for which the program wants them (`MADV_HUGEPAGE`).
    Advised,
    /// All, but those for which it does not.
    Always,
}

/// The settings of a machine.
pub(crate) struct HugeSettings {
    mode: AtomicU32,
    reads_share: AtomicU32,
}

impl HugeSettings {
    pub(crate) fn new() -> Self {
        Self {
            mode: AtomicU32::new(HugeMode::Never as u32),
            reads_share: AtomicU32::new(1),
        }
    }

    /// Returns which mappings get huge pages. No ordering: a fault that does not see a new setting yet precedes it.
    #[inline]
    pub(crate) fn mode(&self) -> HugeMode {
        match self.mode.load(Ordering::Relaxed) {
            0 => HugeMode::Never,
            1 => HugeMode::Advised,
            _ => HugeMode::Always,
        }
    }

    pub(crate) fn set_mode(&self, mode: HugeMode) {
        const NEVER: u32 = HugeMode::Never as u32;
        match (self.mode.swap(mode as u32, Ordering::Relaxed), mode as u32) {
            (NEVER, NEVER) => {}
            (NEVER, _) => Detours::add(),
            (_, NEVER) => Detours::remove(),
            _ => {}
        }
    }

    /// Whether a read maps the shared huge zero page, and not a small one (Linux: `use_zero_page`).
    pub(crate) fn reads_share(&self) -> bool {
        self.reads_share.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn set_reads_share(&self, reads_share: bool) {
        self.reads_share
            .store(u32::from(reads_share), Ordering::Relaxed);
    }
}
