//! The x86-64 machine: QEMU's `q35`, with a debug port for each channel and `isa-debug-exit` as its end.

use std::ffi::OsString;

use super::{Channels, Emulator, chardev};

/// The emulator.
pub const EMULATOR: Emulator = Emulator {
    program: "qemu-system-x86_64",
    package: "qemu-system-x86",
    machine: "q35",
    report: "nmi",
};

/// The devices of the channels.
pub fn devices(channels: &Channels<'_>) -> Vec<OsString> {
    let mut options: Vec<OsString> = Vec::new();
    for (port, socket) in [
        ("0xe9", channels.stdout),
        ("0xea", channels.stderr),
        ("0xeb", channels.control),
        ("0xec", channels.pieces),
    ] {
        let name = format!("port{port}");
        options.extend(["-chardev".into(), chardev(&name, socket)]);
        let device = format!("isa-debugcon,iobase={port},chardev={name}");
        options.extend(["-device".into(), device.into()]);
    }
    if let Some(console) = channels.console {
        options.extend(["-chardev".into(), chardev("console", console)]);
        options.extend(["-serial".into(), "chardev:console".into()]);
    }
    if let Some(input) = channels.stdin {
        options.extend(["-chardev".into(), chardev("stdin", input.socket())]);
        options.extend(["-object".into(), input.window()]);
        options.extend(["-device".into(), "ivshmem-plain,memdev=window".into()]);
        let serial = "isa-serial,iobase=0x3f8,irq=4,chardev=stdin";
        options.extend(["-device".into(), serial.into()]);
    }
    options.extend(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"].map(OsString::from));
    options
}

/// The end of the options of the disk.
pub const DISK_PLACE: &str = "";
