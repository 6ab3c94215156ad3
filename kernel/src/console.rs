//! Where output goes: three debug consoles that QEMU gives to the command that started it.
//!
//! Each has a lock, so that one write of a program appears in one piece. A panic goes around it.

use core::fmt::{self, Write};

use crate::arch::debugcon;
use crate::sync::SpinLock;

/// The program's standard output.
pub const OUTPUT: u16 = 0xe9;
/// The program's standard error, and the kernel's own lines.
pub const ERROR: u16 = 0xea;
/// The control channel: one JSON object at the end.
pub const CONTROL: u16 = 0xeb;

static OUTPUT_LOCK: SpinLock<()> = SpinLock::new(());
static ERROR_LOCK: SpinLock<()> = SpinLock::new(());

/// Writes bytes to a console.
pub fn write(port: u16, bytes: &[u8]) {
    let lock = if port == OUTPUT {
        &OUTPUT_LOCK
    } else {
        &ERROR_LOCK
    };
    let _guard = lock.lock();
    debugcon::write(port, bytes);
}

/// Formats straight to a port, with no lock: for one line under a lock, for panics, and for the
/// control channel, which has one writer.
pub struct Port(pub u16);

impl Write for Port {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        debugcon::write(self.0, text.as_bytes());
        Ok(())
    }
}

struct Lines;

impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        // Libraries' remarks are not for users.
        if record.target().starts_with("faultless") {
            let _guard = ERROR_LOCK.lock();
            let _ = writeln!(Port(ERROR), "faultless: {}", record.args());
        }
    }

    fn flush(&self) {}
}

/// Sends `log`'s lines to the error console.
pub fn begin() {
    let _ = log::set_logger(&Lines);
    log::set_max_level(log::LevelFilter::Info);
}
