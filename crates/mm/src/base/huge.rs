//! Where huge pages are used: the machine's settings, with Linux's names and meanings, and the state of the scan that
//! collapses small pages in the background (`crate::ops::khugepaged`).
//!
//! *Writes*: the settings, when they are set; the scan's state, by the scan; the number of spaces that it goes through, when
//! one is registered or ends.

use faultless_paging::ENTRIES;
use faultless_sync::atomic::{AtomicU32, AtomicU64, Ordering};
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

/// The settings of the scan in the background (Linux: the files of `khugepaged`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugeScanSetting {
    /// Milliseconds until the next try, after one has found no block of frames.
    AllocSleep,
    /// Whether frames are moved to make a block, where none is free.
    Defrag,
    /// The most empty entries of a table that is collapsed.
    MaxNone,
    /// The most pages that other spaces share.
    MaxShared,
    /// The most pages that were swapped out.
    MaxSwap,
    /// Pages that one step looks at.
    PagesToScan,
    /// Milliseconds between two steps.
    ScanSleep,
}

impl HugeScanSetting {
    /// All, in the order of their names in Linux.
    pub const ALL: [Self; 7] = [
        Self::AllocSleep,
        Self::Defrag,
        Self::MaxNone,
        Self::MaxShared,
        Self::MaxSwap,
        Self::PagesToScan,
        Self::ScanSleep,
    ];

    /// Returns the least and the greatest value, and the value at first.
    fn bounds(self) -> (u32, u32, u32) {
        const PAGES: u32 = ENTRIES as u32;
        match self {
            Self::AllocSleep => (0, u32::MAX, 60_000),
            Self::Defrag => (0, 1, 1),
            Self::MaxNone => (0, PAGES - 1, PAGES - 1),
            Self::MaxShared => (0, PAGES - 1, PAGES / 2),
            Self::MaxSwap => (0, PAGES - 1, PAGES / 8),
            Self::PagesToScan => (1, u32::MAX, PAGES * 8),
            Self::ScanSleep => (0, u32::MAX, 10_000),
        }
    }
}

/// The settings of a machine.
pub(crate) struct HugeSettings {
    /// The mode, and above it that of shared memory: one load says whether there are none at all.
    modes: AtomicU32,
    reads_share: AtomicU32,
    of_scan: [AtomicU32; HugeScanSetting::ALL.len()],
    pub(crate) scan: HugeScanState,
}

/// How far the scan is.
pub(crate) struct HugeScanState {
    /// Address spaces that the scan goes through.
    pub(crate) spaces: AtomicU32,
    /// Changes when the thread that scans has a reason to look before its time.
    pub(crate) calls: AtomicU32,
    /// The space in which the scan is, and the page.
    pub(crate) space: AtomicU64,
    pub(crate) page: AtomicU64,
    /// The frame from which the next block is looked for ([`crate::reclaim::blocks`]).
    pub(crate) block: AtomicU64,
    /// Tables that it has collapsed, and how often it went through all spaces.
    pub(crate) collapsed: AtomicU32,
    pub(crate) rounds: AtomicU32,
}

impl HugeScanState {
    fn new() -> Self {
        Self {
            spaces: AtomicU32::new(0),
            calls: AtomicU32::new(0),
            space: AtomicU64::new(0),
            page: AtomicU64::new(0),
            block: AtomicU64::new(0),
            collapsed: AtomicU32::new(0),
            rounds: AtomicU32::new(0),
        }
    }
}

impl HugeSettings {
    pub(crate) fn new() -> Self {
        Self {
            modes: AtomicU32::new(0),
            reads_share: AtomicU32::new(1),
            of_scan: HugeScanSetting::ALL.map(|which| AtomicU32::new(which.bounds().2)),
            scan: HugeScanState::new(),
        }
    }

    pub(crate) fn of_scan(&self, which: HugeScanSetting) -> u32 {
        self.of_scan[which as usize].load(Ordering::Relaxed)
    }

    /// Changes a setting of the scan. Returns whether it may have that value.
    pub(crate) fn set_of_scan(&self, which: HugeScanSetting, value: u32) -> bool {
        let (least, most, _) = which.bounds();
        let is_allowed = (least..=most).contains(&value);
        if is_allowed {
            self.of_scan[which as usize].store(value, Ordering::Relaxed);
        }
        is_allowed
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
        if !self.has_pool() {
            self.set(POOL, POOL);
        }
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

    /// Changes some of the modes. While there is any, faults look for what it asks for.
    fn set(&self, bits: u32, to: u32) {
        let set = |modes| Some(modes & !bits | to);
        let before = self
            .modes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, set)
            .unwrap_or(0);
        match (before, before & !bits | to) {
            (0, 0) => {}
            (0, _) => Detours::add(),
            (_, 0) => Detours::remove(),
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
