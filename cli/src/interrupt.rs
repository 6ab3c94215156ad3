//! Ctrl-C (and SIGTERM, SIGHUP): noted here, seen by whoever waits for a machine.
//!
//! The command does not die at once, so that it can stop the machine and write what it has.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};

/// The exit status of an interrupted command, as a shell would report it.
pub const STATUS: u8 = 130;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Starts to note interrupts; called once, before the first machine.
pub fn install() -> Result<()> {
    // Relaxed: the flag guards no other data.
    let note = || INTERRUPTED.store(true, Ordering::Relaxed);
    ctrlc::set_handler(note).context("cannot handle Ctrl-C")
}

/// Whether the user wants it to end.
pub fn is_requested() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}
