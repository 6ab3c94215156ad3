//! `/sys/kernel/mm/transparent_hugepage`: where huge pages are used. A setting changes what faults map from then on, as on
//! Linux. `defrag` is kept and has no effect: no fault waits for a block of frames. `khugepaged/` has the settings of the scan
//! in the background ([`crate::memory::khugepaged`]).

use core::sync::atomic::{AtomicUsize, Ordering};

use faultless_mm::{HugeMode, HugeScanSetting};

use super::node::{Body, Inode, Node};
use super::proc::{System, Text};
use super::sys::{file, folder, number};
use super::tree;
use crate::errno::{EACCES, EINVAL, EIO, Errno};
use crate::memory::khugepaged;
use crate::memory::machine::memory;

/// What can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    Enabled,
    Shared,
    Defrag,
    ZeroPage,
    /// Of the pool of huge pages (Linux: hugetlb): how many there are.
    Pool,
    /// How many of them are free. Only shown, as the next.
    PoolFree,
    /// How many reservations there are.
    PoolReserved,
    /// How many there are beyond those that are wanted.
    PoolSurplus,
    /// A setting of the scan in the background.
    Scan(HugeScanSetting),
    /// Tables that the scan has collapsed: only to be read.
    Collapsed,
    /// How often it went through all spaces: only to be read.
    Rounds,
}

const ENABLED: [(&str, HugeMode); 3] = [
    ("always", HugeMode::Always),
    ("madvise", HugeMode::Advised),
    ("never", HugeMode::Never),
];
/// The settings for shared memory. Here, a huge page never reaches behind an object's end (`within_size`), and files of the
/// tree get none (`force`).
const SHARED: [(&str, HugeMode); 6] = [
    ("always", HugeMode::Always),
    ("within_size", HugeMode::Always),
    ("advise", HugeMode::Advised),
    ("never", HugeMode::Never),
    ("deny", HugeMode::Never),
    ("force", HugeMode::Always),
];
/// The position of `shmem_enabled` in its list.
static SHARED_NOW: AtomicUsize = AtomicUsize::new(3);
const DEFRAG: [&str; 5] = ["always", "defer", "defer+madvise", "madvise", "never"];
/// The position of `defrag` in its list.
static DEFRAG_NOW: AtomicUsize = AtomicUsize::new(3);

/// The files of `khugepaged`.
const BACKGROUND: [(&str, Setting); 9] = [
    (
        "alloc_sleep_millisecs",
        Setting::Scan(HugeScanSetting::AllocSleep),
    ),
    ("defrag", Setting::Scan(HugeScanSetting::Defrag)),
    ("full_scans", Setting::Rounds),
    ("max_ptes_none", Setting::Scan(HugeScanSetting::MaxNone)),
    ("max_ptes_shared", Setting::Scan(HugeScanSetting::MaxShared)),
    ("max_ptes_swap", Setting::Scan(HugeScanSetting::MaxSwap)),
    ("pages_collapsed", Setting::Collapsed),
    ("pages_to_scan", Setting::Scan(HugeScanSetting::PagesToScan)),
    (
        "scan_sleep_millisecs",
        Setting::Scan(HugeScanSetting::ScanSleep),
    ),
];

/// Bytes of a huge page.
const SIZE: u32 = 2 << 20;

/// Returns the mode with a name, as `enabled` has it.
pub fn mode(name: &[u8]) -> Option<HugeMode> {
    let named = ENABLED.iter().find(|(known, _)| known.as_bytes() == name);
    named.map(|&(_, mode)| mode)
}

impl Setting {
    /// Writes the file's text.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn write(self, text: &mut Text) -> Result<(), Errno> {
        match self {
            Self::Enabled => {
                let now = memory().huge_mode();
                choice(text, ENABLED.map(|(name, mode)| (name, mode == now)))
            }
            Self::Shared => {
                let now = SHARED_NOW.load(Ordering::Relaxed);
                let named = |at: usize| (SHARED[at].0, at == now);
                choice(text, core::array::from_fn::<_, 6, _>(named))
            }
            Self::Defrag => {
                let now = DEFRAG_NOW.load(Ordering::Relaxed);
                let named = |at: usize| (DEFRAG[at], at == now);
                choice(text, [named(0), named(1), named(2), named(3), named(4)])
            }
            Self::ZeroPage => text.line(format_args!("{}", u32::from(memory().huge_zero_page()))),
            Self::Pool => {
                let pool = memory().pool_sizes();
                text.line(format_args!(
                    "{}",
                    pool.total - pool.surplus.min(pool.total)
                ))
            }
            Self::PoolFree => text.line(format_args!("{}", memory().pool_sizes().free)),
            Self::PoolSurplus => text.line(format_args!("{}", memory().pool_sizes().surplus)),
            Self::PoolReserved => text.line(format_args!("{}", memory().pool_sizes().reserved)),
            Self::Scan(which) => text.line(format_args!("{}", memory().huge_scan_setting(which))),
            Self::Collapsed => text.line(format_args!("{}", memory().huge_scanned().0)),
            Self::Rounds => text.line(format_args!("{}", memory().huge_scanned().1)),
        }
    }

    /// Changes the setting, as a program wrote it.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn set(self, text: &[u8]) -> Result<(), Errno> {
        // As in Linux, a line feed may end the word.
        let word = text.strip_suffix(b"\n").unwrap_or(text);
        match self {
            Self::Shared => {
                let named = |(name, _): &(&str, _)| name.as_bytes() == word;
                let at = SHARED.iter().position(named).ok_or(EINVAL)?;
                SHARED_NOW.store(at, Ordering::Relaxed);
                memory().set_shared_huge_mode(SHARED[at].1);
            }
            Self::Enabled => khugepaged::set_mode(mode(word).ok_or(EINVAL)?)?,
            Self::Defrag => {
                let at = DEFRAG.iter().position(|name| name.as_bytes() == word);
                DEFRAG_NOW.store(at.ok_or(EINVAL)?, Ordering::Relaxed);
            }
            Self::ZeroPage => match word {
                b"0" => memory().set_huge_zero_page(false),
                b"1" => memory().set_huge_zero_page(true),
                _ => return Err(EINVAL),
            },
            Self::Pool => {
                // As near as memory allows, without an error.
                let number = core::str::from_utf8(word).map_err(|_| EINVAL)?;
                memory().resize_pool(number.trim().parse().map_err(|_| EINVAL)?);
            }
            Self::PoolFree | Self::PoolReserved | Self::PoolSurplus => return Err(EACCES),
            Self::Scan(which) => {
                let text = core::str::from_utf8(word).map_err(|_| EINVAL)?;
                let value = text.parse().map_err(|_| EINVAL)?;
                if !memory().set_huge_scan(which, value) {
                    return Err(EINVAL);
                }
            }
            Self::Collapsed | Self::Rounds => return Err(EIO),
        }
        Ok(())
    }
}

/// Writes the names of a choice, the present one in brackets.
fn choice<const N: usize>(text: &mut Text, names: [(&str, bool); N]) -> Result<(), Errno> {
    for (at, (name, is_chosen)) in names.into_iter().enumerate() {
        let space = if at == 0 { "" } else { " " };
        match is_chosen {
            true => text.add(format_args!("{space}[{name}]"))?,
            false => text.add(format_args!("{space}{name}"))?,
        }
    }
    text.bytes(b"\n")
}

/// Makes the file of a setting.
fn add(at: &Node, name: &str, setting: Setting, permissions: u32) -> Result<(), Errno> {
    let inode = Inode::new(Body::Setting(System::Huge(setting)), permissions)?;
    tree::add_special(at, name.as_bytes(), inode)
}

/// Makes the directory.
///
/// # Errors
/// `ENOMEM`.
pub fn build() -> Result<(), Errno> {
    let mut at = tree::root();
    for name in ["sys", "kernel", "mm", "transparent_hugepage"] {
        at = folder(&at, name.as_bytes())?;
    }
    for (name, setting) in [
        ("enabled", Setting::Enabled),
        ("shmem_enabled", Setting::Shared),
        ("defrag", Setting::Defrag),
        ("use_zero_page", Setting::ZeroPage),
    ] {
        add(&at, name, setting, 0o644)?;
    }
    build_pool()?;
    let background = folder(&at, b"khugepaged")?;
    for (name, setting) in BACKGROUND {
        let permissions = match setting {
            Setting::Collapsed | Setting::Rounds => 0o444,
            _ => 0o644,
        };
        add(&background, name, setting, permissions)?;
    }
    file(&at, b"hpage_pmd_size", 0o444, number(SIZE)?)
}

/// Makes the directory of the pool.
fn build_pool() -> Result<(), Errno> {
    let mut at = tree::root();
    for name in ["sys", "kernel", "mm", "hugepages", "hugepages-2048kB"] {
        at = folder(&at, name.as_bytes())?;
    }
    for (name, setting, permissions) in [
        ("nr_hugepages", Setting::Pool, 0o644),
        ("free_hugepages", Setting::PoolFree, 0o444),
        ("resv_hugepages", Setting::PoolReserved, 0o444),
        ("surplus_hugepages", Setting::PoolSurplus, 0o444),
    ] {
        add(&at, name, setting, permissions)?;
    }
    // The pool never grows by itself.
    file(&at, b"nr_overcommit_hugepages", 0o444, number(0)?)
}
