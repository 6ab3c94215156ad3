//! The AArch64 machine: QEMU's `virt`, with a PCI card of four serial ports for the channels, and the board's own
//! serial port, a PL011, for standard input or for the console of another kernel. PSCI ends it.
//!
//! Every PCI device has a fixed place, so that our kernel finds it without a search.

use std::ffi::OsString;

use super::{Channels, Emulator, chardev};

/// The emulator. This machine has no NMI: its power button asks the kernel for a report.
pub const EMULATOR: Emulator = Emulator {
    program: "qemu-system-aarch64",
    package: "qemu-system-arm",
    machine: "virt,gic-version=3",
    report: "system_powerdown",
};

/// The devices of the channels.
pub fn devices(channels: &Channels<'_>) -> Vec<OsString> {
    let mut options: Vec<OsString> = Vec::new();
    let mut card = "pci-serial-4x,addr=0x1".to_owned();
    for (number, (name, socket)) in (1..).zip([
        ("stdout", channels.stdout),
        ("stderr", channels.stderr),
        ("control", channels.control),
        ("pieces", channels.pieces),
    ]) {
        options.extend(["-chardev".into(), chardev(name, socket)]);
        card += &format!(",chardev{number}={name}");
    }
    options.extend(["-device".into(), card.into()]);
    let serial = match (channels.console, channels.stdin) {
        (Some(console), _) => {
            options.extend(["-chardev".into(), chardev("console", console)]);
            "chardev:console"
        }
        (None, Some(input)) => {
            options.extend(["-chardev".into(), chardev("stdin", input.socket())]);
            options.extend(["-object".into(), input.window()]);
            let window = "ivshmem-plain,memdev=window,addr=0x2";
            options.extend(["-device".into(), window.into()]);
            "chardev:stdin"
        }
        (None, None) => "none",
    };
    options.extend(["-serial".into(), serial.into()]);
    options
}

/// The end of the options of the disk.
pub const DISK_PLACE: &str = ",addr=0x3";
