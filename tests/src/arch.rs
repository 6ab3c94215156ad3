//! The architecture of the machines that tests boot: x86-64, or what `FAULTLESS_ARCH` names.

use std::path::PathBuf;
use std::process::Command;

use crate::programs::root;

/// An architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    AArch64,
}

impl Arch {
    /// That of the machines.
    pub fn of_machines() -> Self {
        match std::env::var("FAULTLESS_ARCH").as_deref() {
            Err(_) | Ok("" | "x86_64") => Arch::X86_64,
            Ok("aarch64") => Arch::AArch64,
            Ok(other) => panic!("FAULTLESS_ARCH is {other}"),
        }
    }

    /// The C compiler, with musl.
    pub fn compiler(self) -> PathBuf {
        match self {
            Arch::X86_64 => "musl-gcc".into(),
            Arch::AArch64 => root().join(".faultless/musl-aarch64/musl-gcc"),
        }
    }

    /// What makes programs print the same on every architecture: a signed `char`, the layout that linkers give to
    /// programs for x86-64, and a real vfork.
    pub const fn flags(self) -> &'static [&'static str] {
        match self {
            Arch::X86_64 => &[],
            Arch::AArch64 => &[
                "-D_GNU_SOURCE=",
                "-fsigned-char",
                "-Wl,-z,max-page-size=4096,-z,separate-code",
                "-include",
                concat!(env!("CARGO_MANIFEST_DIR"), "/programs/aarch64.h"),
            ],
        }
    }

    /// The path of the loader of dynamically linked musl programs, which is also their C library.
    pub const fn interpreter(self) -> &'static str {
        match self {
            Arch::X86_64 => "/lib/ld-musl-x86_64.so.1",
            Arch::AArch64 => "/lib/ld-musl-aarch64.so.1",
        }
    }

    /// The file of that loader on the host.
    pub fn library(self) -> PathBuf {
        match self {
            Arch::X86_64 => self.interpreter().into(),
            Arch::AArch64 => root().join(".faultless/musl-aarch64/lib/libc.so"),
        }
    }

    /// The kernel image.
    pub fn kernel(self) -> PathBuf {
        root().join(match self {
            Arch::X86_64 => ".faultless/kernel",
            Arch::AArch64 => ".faultless/kernel-aarch64",
        })
    }

    /// The emulator, with a machine that writes the files `out`, `err` and `control` in the current folder; on AArch64
    /// also `pieces`.
    pub fn emulator(self) -> Command {
        let mut qemu;
        match self {
            Arch::X86_64 => {
                qemu = Command::new("qemu-system-x86_64");
                qemu.args(["-machine", "q35", "-cpu", "max"]);
                qemu.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
                for (name, port) in [("out", "0xe9"), ("err", "0xea"), ("control", "0xeb")] {
                    qemu.args(["-chardev", &format!("file,id={name},path={name}")]);
                    let device = format!("isa-debugcon,iobase={port},chardev={name}");
                    qemu.args(["-device", &device]);
                }
            }
            Arch::AArch64 => {
                qemu = Command::new("qemu-system-aarch64");
                qemu.args(["-machine", "virt,gic-version=3"]);
                qemu.args(["-cpu", "max,pauth-impdef=on"]);
                let mut card = "pci-serial-4x,addr=0x1".to_owned();
                for (number, name) in (1..).zip(["out", "err", "control", "pieces"]) {
                    qemu.args(["-chardev", &format!("file,id={name},path={name}")]);
                    card += &format!(",chardev{number}={name}");
                }
                qemu.args(["-device", &card, "-serial", "none"]);
            }
        }
        qemu
    }
}

/// Splits the file `pieces` into standard output and standard error. A piece is the console (one byte), its length
/// (four bytes), and its bytes.
pub fn split(mut pieces: &[u8]) -> [String; 2] {
    let mut streams = [Vec::new(), Vec::new()];
    while let Some((&[console, a, b, c, d], rest)) = pieces.split_first_chunk() {
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        let (piece, next) = rest.split_at(length.min(rest.len()));
        streams[usize::from(console != 0xe9)].extend_from_slice(piece);
        pieces = next;
    }
    streams.map(|stream| String::from_utf8_lossy(&stream).into_owned())
}
