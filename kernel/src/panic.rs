//! Kernel panics: reports a bug once, stops all CPUs, turns the machine off.

use core::fmt::Write;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::arch::power;
use crate::console::{ERROR, Port};
use crate::report::{End, finish};

static PANICKING: AtomicBool = AtomicBool::new(false);

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    if PANICKING.swap(true, Ordering::AcqRel) {
        // A second CPU, or a panic while panicking.
        power::off();
    }
    let _ = writeln!(Port(ERROR), "faultless: kernel panic: {info}");
    power::stop_others();
    finish(
        End::Nothing,
        Some(format_args!("kernel panic: {}", info.message())),
    )
}
