//! Console output: debug consoles that QEMU connects to the command that started it.
//!
//! Writes of programs to stdout and stderr have one order, and each write appears in one piece. Two consoles
//! lose the order, so a third may carry both, in *pieces*, each with the console that it is meant for. A
//! panic bypasses locks and pieces.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::arch::debugcon;
use crate::sync::SpinLock;

/// The program's standard output.
pub const OUTPUT: u16 = 0xe9;
/// The program's standard error, and the kernel's own lines.
pub const ERROR: u16 = 0xea;
/// The control channel: one JSON object at the end.
pub const CONTROL: u16 = 0xeb;
/// Both of the first two, in pieces: the console (the low byte of its port), the length (four
/// bytes, the lowest first), the bytes.
const PIECES: u16 = 0xec;

/// Held for one write, or for a line.
static LOCK: SpinLock<()> = SpinLock::new(());
/// Whether there is a console for pieces. Written once, before there is a second CPU.
static IN_PIECES: AtomicBool = AtomicBool::new(false);

/// Writes bytes to [`OUTPUT`] or [`ERROR`].
pub fn write(port: u16, bytes: &[u8]) {
    let _guard = LOCK.lock();
    write_locked(port, bytes);
}

/// The same, with the lock held.
fn write_locked(port: u16, bytes: &[u8]) {
    if !IN_PIECES.load(Ordering::Relaxed) {
        return debugcon::write(port, bytes);
    }
    for bytes in bytes.chunks(u32::MAX as usize) {
        let mut header = [port as u8, 0, 0, 0, 0];
        header[1..].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        debugcon::write(PIECES, &header);
        debugcon::write(PIECES, bytes);
    }
}

/// Formats straight to a port, with no lock: for panics, and for the control channel, which has
/// one writer.
pub struct Port(pub u16);

impl Write for Port {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        debugcon::write(self.0, text.as_bytes());
        Ok(())
    }
}

/// Formats to stderr; the lock is held.
struct Line;

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write_locked(ERROR, text.as_bytes());
        Ok(())
    }
}

struct Lines;

impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        // Messages of libraries are not for users.
        if record.target().starts_with("faultless") {
            let _guard = LOCK.lock();
            let _ = writeln!(Line, "faultless: {}", record.args());
        }
    }

    fn flush(&self) {}
}

/// Detects the consoles, and sends `log`'s lines to stderr.
pub fn begin() {
    IN_PIECES.store(debugcon::is_at(PIECES), Ordering::Relaxed);
    let _ = log::set_logger(&Lines);
    log::set_max_level(log::LevelFilter::Info);
}
