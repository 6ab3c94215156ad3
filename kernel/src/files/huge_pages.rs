//! `/sys/kernel/mm/transparent_hugepage`: where huge pages are used. A setting changes what faults map from then on, as on
//! Linux. `defrag` is kept and has no effect: no fault waits for a block of frames.

use core::sync::atomic::{AtomicUsize, Ordering};

use faultless_mm::HugeMode;

use super::node::{Body, Inode};
use super::proc::{System, Text};
use super::sys::{file, folder, number};
use super::tree;
use crate::errno::{EACCES, EINVAL, Errno};
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

/// Settings of Linux's `khugepaged`, as at first. There is no such thread: a program that writes one changes the file.
const BACKGROUND: [(&str, u32); 9] = [
    ("alloc_sleep_millisecs", 60_000),
    ("defrag", 1),
    ("full_scans", 0),
    ("max_ptes_none", 511),
    ("max_ptes_shared", 256),
    ("max_ptes_swap", 64),
    ("pages_collapsed", 0),
    ("pages_to_scan", 4096),
    ("scan_sleep_millisecs", 10_000),
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
                text.line(format_args!("{}", pool.total - pool.surplus.min(pool.total)))
            }
            Self::PoolFree => text.line(format_args!("{}", memory().pool_sizes().free)),
            Self::PoolSurplus => text.line(format_args!("{}", memory().pool_sizes().surplus)),
            Self::PoolReserved => text.line(format_args!("{}", memory().pool_sizes().reserved)),
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
            Self::Enabled => memory().set_huge_mode(mode(word).ok_or(EINVAL)?),
            Self::Shared => {
                let named = |(name, _): &(&str, _)| name.as_bytes() == word;
                let at = SHARED.iter().position(named).ok_or(EINVAL)?;
                SHARED_NOW.store(at, Ordering::Relaxed);
                memory().set_shared_huge_mode(SHARED[at].1);
            }
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
        ("enabled", System::HugeEnabled),
        ("shmem_enabled", System::HugeShared),
        ("defrag", System::HugeDefrag),
        ("use_zero_page", System::HugeZeroPage),
    ] {
        let inode = Inode::new(Body::Setting(setting), 0o644)?;
        tree::add_special(&at, name.as_bytes(), inode)?;
    }
    build_pool()?;
    let background = folder(&at, b"khugepaged")?;
    for (name, value) in BACKGROUND {
        file(&background, name.as_bytes(), 0o644, number(value)?)?;
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
        ("nr_hugepages", System::PoolSize, 0o644),
        ("free_hugepages", System::PoolFree, 0o444),
        ("resv_hugepages", System::PoolReserved, 0o444),
        ("surplus_hugepages", System::PoolSurplus, 0o444),
    ] {
        let inode = Inode::new(Body::Setting(setting), permissions)?;
        tree::add_special(&at, name.as_bytes(), inode)?;
    }
    // The pool never grows by itself.
    file(&at, b"nr_overcommit_hugepages", 0o444, number(0)?)
}
