//! Set-up: installs what a bare Debian 12 with rustup lacks, only if it is missing and needed.
//!
//! Each need knows whether it is met, which packages meet it, and the message for a machine
//! that cannot install them.

mod apt;
mod archive;
pub mod bare_metal;
mod find;
mod foreign;
pub mod linux;
pub mod linux_tests;
mod musl;
pub mod rustup;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use crate::arch::Arch;
use crate::build;
use crate::layout::Layout;
use crate::refusal::Refusal;
use bare_metal::BareMetal;

/// The package of a Java machine without windows.
const JAVA: &str = "openjdk-17-jre-headless";

const TEXT: &str = "\
Install and build everything that the other commands need.

Usage: ./x setup [aarch64 | linux-tests]

Installs by apt-get, and only what is missing: qemu-system-x86; musl-tools; and, unless rustup has
the target x86_64-unknown-none, Debian's rustc-web, cargo-web, rust-web-src and lld. Then builds
the command, the kernel and the packaged workloads. (./x test also installs busybox-static,
sqlite3 and stress-ng.)

Arguments:
  aarch64      Instead, what runs AArch64 programs: qemu-system-arm, gcc-aarch64-linux-gnu; and, unless rustup has the
               target aarch64-unknown-none-softfloat, the same of Debian's. Fetches musl for AArch64 (1 MB, not installed).
               Then builds the kernel and the packaged workloads for AArch64. (./x run --arch aarch64 does so, too, as far as it needs it;
               ./x fuzz --arch aarch64 also adds libc6-dev-arm64-cross and rustup's target aarch64-unknown-linux-gnu.)
  linux-tests  Instead, build tests of Linux 6.12 itself, from the source that Debian packages (fetched, about 150 MB;
               needs gcc, make and xz). Static programs: .faultless/linux-tests/mm and .faultless/linux-tests/kvm

Examples:
  ./x setup
  ./x setup linux-tests && ./x run -- .faultless/linux-tests/mm/uffd-unit-tests
";

/// Something that must be installed on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The emulator that boots the kernel.
    Qemu(Arch),
    /// The C compiler with musl.
    Musl(Arch),
    /// The C compiler with glibc for another architecture than the host's.
    CrossGlibc,
    /// The emulator of single programs for AArch64.
    QemuUser,
    /// A Rust toolchain that builds static programs, the C library and a linker.
    Static(Arch),
    /// A Rust toolchain that builds for no operating system.
    BareMetal(Arch),
    /// Debian's static BusyBox, which tests run unmodified in the kernel.
    Busybox,
    /// Debian's `sqlite3`, which has libraries.
    Sqlite,
    /// Debian's `stress-ng`.
    StressNg(Arch),
    /// Debian's OpenJDK for AArch64.
    Java,
    /// What builds Linux's own tests.
    LinuxTests,
    /// `cargo fmt` and `cargo clippy`.
    Lints,
}

/// `./x setup`.
pub fn command(layout: &Layout, arguments: &[OsString]) -> Result<ExitCode, Refusal> {
    match arguments.first().and_then(|argument| argument.to_str()) {
        Some("--help" | "-h") => {
            print!("{TEXT}");
            return Ok(ExitCode::SUCCESS);
        }
        Some("linux-tests") if arguments.len() == 1 => return linux_tests(layout),
        Some("aarch64") if arguments.len() == 1 => return everything(layout, Arch::AArch64),
        Some(other) => return Err(Refusal::new(format!("setup takes no argument '{other}'"))),
        None => {}
    }
    everything(layout, Arch::X86_64)
}

/// `./x setup` for one architecture.
fn everything(layout: &Layout, arch: Arch) -> Result<ExitCode, Refusal> {
    let needs = [Need::Qemu(arch), Need::Musl(arch), Need::BareMetal(arch)];
    provide(layout, &needs)?;
    build::command(layout)?;
    build::kernel(layout, arch)?;
    build::workloads(layout, arch)?;
    eprintln!("x: everything is installed and built");
    Ok(ExitCode::SUCCESS)
}

/// `./x setup linux-tests`.
fn linux_tests(layout: &Layout) -> Result<ExitCode, Refusal> {
    for family in linux_tests::FAMILIES {
        linux_tests::provide(layout, family)?;
    }
    let folder = layout.linux_tests();
    eprintln!("x: Linux's tests are in {}", folder.display());
    Ok(ExitCode::SUCCESS)
}

/// Installs what is missing of `needs`.
pub fn provide(layout: &Layout, needs: &[Need]) -> Result<(), Refusal> {
    let mut missing = Vec::new();
    for need in needs {
        missing.extend(need.missing()?);
    }
    apt::install(layout, &missing)?;
    for need in needs {
        match need {
            Need::BareMetal(arch) => BareMetal::choose(*arch)?.check()?,
            Need::Musl(Arch::AArch64) => musl::provide(layout)?,
            Need::StressNg(Arch::AArch64) => foreign::provide(layout, "stress-ng")?,
            Need::Java => foreign::provide(layout, JAVA)?,
            Need::Static(arch) => rustup::provide(layout, *arch)?,
            _ => {}
        }
    }
    Ok(())
}

impl Need {
    /// The packages that meet this need; none when it is met already.
    fn missing(self) -> Result<Vec<&'static str>, Refusal> {
        match self {
            Need::Qemu(_) if pretend_no_qemu() => {
                Err(Refusal::new("QEMU cannot be had: FAULTLESS_NO_QEMU is set"))
            }
            Need::Qemu(Arch::X86_64) => Ok(package(
                find::program("qemu-system-x86_64"),
                "qemu-system-x86",
            )),
            Need::Qemu(Arch::AArch64) => Ok(package(
                find::program("qemu-system-aarch64"),
                "qemu-system-arm",
            )),
            Need::Musl(Arch::X86_64) => Ok(package(find::program("musl-gcc"), "musl-tools")),
            Need::Musl(Arch::AArch64) => Ok(package(
                find::program("aarch64-linux-gnu-gcc"),
                "gcc-aarch64-linux-gnu",
            )),
            Need::CrossGlibc => Ok(package(
                Path::new("/usr/aarch64-linux-gnu/include/stdio.h").exists(),
                "libc6-dev-arm64-cross",
            )),
            Need::QemuUser => Ok(package(find::program("qemu-aarch64"), "qemu-user")),
            // The host's own are what cargo needs for anything.
            Need::Static(Arch::X86_64) => Ok(Vec::new()),
            Need::Static(Arch::AArch64) => {
                let compiler = Need::Musl(Arch::AArch64).missing()?;
                Ok([compiler, Need::CrossGlibc.missing()?].concat())
            }
            Need::BareMetal(arch) => Ok(BareMetal::choose(arch)?.missing()),
            Need::Busybox => Ok(package(find::program("busybox"), "busybox-static")),
            Need::Sqlite => Ok(package(find::program("sqlite3"), "sqlite3")),
            Need::StressNg(Arch::X86_64) => Ok(package(find::program("stress-ng"), "stress-ng")),
            // They are not installed.
            Need::StressNg(Arch::AArch64) | Need::Java => Ok(Vec::new()),
            Need::LinuxTests => Ok(linux_tests_tools()),
            Need::Lints => lints(),
        }
    }
}

fn package(present: bool, name: &'static str) -> Vec<&'static str> {
    if present { Vec::new() } else { vec![name] }
}

fn linux_tests_tools() -> Vec<&'static str> {
    let mut packages = Vec::new();
    // A compiler without the C library's headers is of no use.
    if !find::program("gcc") || !Path::new("/usr/include/stdio.h").exists() {
        packages.extend(["gcc", "libc6-dev"]);
    }
    packages.extend(package(find::program("make"), "make"));
    packages.extend(package(find::program("xz"), "xz-utils"));
    packages
}

/// Whether the user wants the behaviour of a machine without QEMU.
fn pretend_no_qemu() -> bool {
    std::env::var_os("FAULTLESS_NO_QEMU").is_some_and(|value| !value.is_empty() && value != "0")
}

/// rustfmt and clippy are parts of rustup's default profile; no package adds them to a toolchain.
fn lints() -> Result<Vec<&'static str>, Refusal> {
    for (tool, component) in [("cargo-fmt", "rustfmt"), ("cargo-clippy", "clippy")] {
        if !find::program(tool) {
            let line = format!("{component} is missing: run 'rustup component add {component}'");
            return Err(Refusal::new(line));
        }
    }
    Ok(Vec::new())
}
