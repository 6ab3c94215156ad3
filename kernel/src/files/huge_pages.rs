//! `/sys/kernel/mm/transparent_hugepage`: as on a Linux that is told to use no huge pages. Programs may ask for them
//! (`MADV_HUGEPAGE`), and get small ones. A program that writes a setting changes the file and nothing else.

use super::proc::Text;
use super::sys::{file, folder, number};
use super::tree;
use crate::errno::Errno;

/// Names and texts of what can be set.
const SETTINGS: [(&str, &str); 3] = [
    ("enabled", "always madvise [never]"),
    ("defrag", "always defer defer+madvise [madvise] never"),
    (
        "shmem_enabled",
        "always within_size advise [never] deny force",
    ),
];

/// Bytes of a huge page.
const SIZE: u32 = 2 << 20;

/// Makes the directory.
///
/// # Errors
/// `ENOMEM`.
pub fn build() -> Result<(), Errno> {
    let mut at = tree::root();
    for name in ["sys", "kernel", "mm", "transparent_hugepage"] {
        at = folder(&at, name.as_bytes())?;
    }
    for (name, setting) in SETTINGS {
        let mut text = Text::new();
        text.line(format_args!("{setting}"))?;
        file(&at, name.as_bytes(), 0o644, text)?;
    }
    file(&at, b"hpage_pmd_size", 0o444, number(SIZE)?)?;
    file(&at, b"use_zero_page", 0o644, number(1)?)
}
