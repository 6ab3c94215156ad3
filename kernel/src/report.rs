//! The report of a run: one JSON object on the control channel, before the machine turns off.

use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::arch::{debugcon, percpu, power, time};
use crate::console::{CONTROL, Port};
use crate::memory;

/// How the program ended.
#[derive(Clone, Copy, Debug)]
pub enum End {
    Exit(i32),
    Signal(u32),
    /// The program never ran, or the kernel cannot continue.
    Nothing,
}

/// When the program began.
static BEGAN: AtomicU64 = AtomicU64::new(0);
/// When the program ended.
static ENDED: AtomicU64 = AtomicU64::new(0);
/// Whether a CPU writes the report already.
static REPORTED: AtomicBool = AtomicBool::new(false);

/// Records that the program begins now.
pub fn program_begins() {
    BEGAN.store(time::now(), Ordering::Relaxed);
}

/// Records that the program ends now; later time does not count.
pub fn program_ends() {
    ENDED.store(time::now(), Ordering::Relaxed);
}

/// Escapes a string for JSON.
struct Json;

impl Write for Json {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for byte in text.bytes() {
            match byte {
                b'"' => debugcon::write(CONTROL, b"\\\""),
                b'\\' => debugcon::write(CONTROL, b"\\\\"),
                b'\n' => debugcon::write(CONTROL, b"\\n"),
                0..0x20 => debugcon::write(CONTROL, b" "),
                _ => debugcon::write(CONTROL, &[byte]),
            }
        }
        Ok(())
    }
}

/// Writes the report and turns the machine off. Only the first caller's report is written.
pub fn finish(end: End, error: Option<core::fmt::Arguments<'_>>) -> ! {
    if REPORTED.swap(true, Ordering::AcqRel) {
        loop {
            crate::arch::relax();
        }
    }
    let nanoseconds = match BEGAN.load(Ordering::Relaxed) {
        0 => 0,
        began => match ENDED.load(Ordering::Relaxed) {
            0 => time::now().saturating_sub(began),
            ended => ended.saturating_sub(began),
        },
    };
    let mut out = Port(CONTROL);
    let _ = match end {
        End::Exit(status) => write!(out, "{{\"exit\":{status},\"signal\":null"),
        End::Signal(signal) => write!(out, "{{\"exit\":null,\"signal\":{signal}"),
        End::Nothing => write!(out, "{{\"exit\":null,\"signal\":null"),
    };
    let _ = write!(
        out,
        ",\"seconds\":{}.{:09},\"cpus\":{},\"counters\":{{",
        nanoseconds / 1_000_000_000,
        nanoseconds % 1_000_000_000,
        percpu::count(),
    );
    let mut separator = "";
    memory::for_each_counter(&mut |name, value| {
        let _ = write!(out, "{separator}\"{name}\":{value}");
        separator = ",";
    });
    let _ = write!(out, "}},\"unknown_syscalls\":[");
    separator = "";
    crate::syscall::unknown::for_each(&mut |number| {
        let _ = write!(out, "{separator}{number}");
        separator = ",";
    });
    let _ = write!(out, "],");
    crate::trace::report(&mut out);
    crate::heap::failing::report(&mut out);
    crate::verify::report(&mut out);
    let _ = write!(out, "\"error\":");
    let _ = match error {
        None => write!(out, "null"),
        Some(error) => write!(out, "\"")
            .and_then(|()| Json.write_fmt(error))
            .and_then(|()| write!(out, "\"")),
    };
    let _ = writeln!(out, "}}");
    power::off()
}

/// Says on the error console and in the report why nothing ran, and turns the machine off.
pub fn refuse(error: core::fmt::Arguments<'_>) -> ! {
    log::error!("{error}");
    finish(End::Nothing, Some(error))
}
