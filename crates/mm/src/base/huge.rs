//! Where huge pages are used: the machine's settings, with Linux's names and meanings.
//!
//! *Writes*: the settings, when they are set.

use faultless_sync::atomic::{AtomicU32, Ordering};

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

/// The bits of a mode.
const MODE: u32 = 3;
/// The shift of the mode of shared memory.
const SHARED: u32 = 2;
/// Whether there are mappings of the pool.
const POOL: u32 = 1 << 4;

impl HugeMode {
    fn of(bits: u32) -> Self {
        match bits & MODE {
            0 => Self::Never,
            1 => Self::Advised,
            _ => Self::Always,
        }
    }
}

/// The settings of a machine.
pub(crate) struct HugeSettings {
    /// The mode, and above it that of shared memory: one load says whether there are none at all.
    modes: AtomicU32,
    reads_share: AtomicU32,
}

impl HugeSettings {
    pub(crate) fn new() -> Self {
        Self {
            modes: AtomicU32::new(0),
            reads_share: AtomicU32::new(1),
        }
    }

    /// Returns which mappings get huge pages. No ordering: a fault that does not see a new setting yet precedes it.
    #[inline]
    pub(crate) fn mode(&self) -> HugeMode {
        HugeMode::of(self.modes.load(Ordering::Relaxed))
    }

    /// Whether no mapping gets huge pages.
    #[inline]
    pub(crate) fn is_never(&self) -> bool {
        self.modes.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn set_mode(&self, mode: HugeMode) {
        self.set(MODE, mode as u32);
    }

    /// Notes that there are mappings of the pool of huge pages: faults ask for them, whatever the modes are.
    pub(crate) fn note_pool(&self) {
        self.modes.fetch_or(POOL, Ordering::Relaxed);
    }

    /// Whether there were ever any.
    pub(crate) fn has_pool(&self) -> bool {
        self.modes.load(Ordering::Relaxed) & POOL != 0
    }

    /// Returns which mappings of shared memory get huge pages (Linux: `shmem_enabled`).
    pub(crate) fn shared_mode(&self) -> HugeMode {
        HugeMode::of(self.modes.load(Ordering::Relaxed) >> SHARED)
    }

    pub(crate) fn set_shared_mode(&self, mode: HugeMode) {
        self.set(MODE << SHARED, (mode as u32) << SHARED);
    }

    fn set(&self, bits: u32, to: u32) {
        let set = |modes| Some(modes & !bits | to);
        let _ = self
            .modes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
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
