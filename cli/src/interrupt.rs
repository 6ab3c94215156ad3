//! Records Ctrl-C (and SIGTERM, SIGHUP); code that waits for a machine checks for it.
//!
//! The command does not end immediately, so that it can stop the machine and write its results.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};

/// The exit status of an interrupted command, as a shell would report it.
pub const STATUS: u8 = 130;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Starts to record interrupts; called once, before the first machine.
pub fn install() -> Result<()> {
    // Relaxed: the flag guards no other data.
    let note = || INTERRUPTED.store(true, Ordering::Relaxed);
    ctrlc::set_handler(note).context("cannot handle Ctrl-C")
}

/// Whether the user has interrupted the command.
pub fn is_requested() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}
