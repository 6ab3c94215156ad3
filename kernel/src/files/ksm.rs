//! `/sys/kernel/mm/ksm`: merging of equal pages. Programs may allow it (`MADV_MERGEABLE`), and it never begins. The
//! settings are Linux's defaults; a program that writes one changes the file and nothing else.

use super::sys::{file, folder, number};
use super::tree;
use crate::errno::Errno;

/// Names and values of what can be set.
const SETTINGS: [(&str, u32); 8] = [
    ("max_page_sharing", 256),
    ("merge_across_nodes", 1),
    ("pages_to_scan", 100),
    ("run", 0),
    ("sleep_millisecs", 20),
    ("smart_scan", 1),
    ("stable_node_chains_prune_millisecs", 2000),
    ("use_zero_pages", 0),
];

/// Names of counts.
const COUNTS: [&str; 11] = [
    "full_scans",
    "general_profit",
    "ksm_zero_pages",
    "pages_scanned",
    "pages_shared",
    "pages_sharing",
    "pages_skipped",
    "pages_unshared",
    "pages_volatile",
    "stable_node_chains",
    "stable_node_dups",
];

/// Makes the directory.
///
/// # Errors
/// `ENOMEM`.
pub fn build() -> Result<(), Errno> {
    let mut at = tree::root();
    for name in ["sys", "kernel", "mm", "ksm"] {
        at = folder(&at, name.as_bytes())?;
    }
    for (name, value) in SETTINGS {
        file(&at, name.as_bytes(), 0o644, number(value)?)?;
    }
    for name in COUNTS {
        file(&at, name.as_bytes(), 0o444, number(0)?)?;
    }
    Ok(())
}
