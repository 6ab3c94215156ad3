//! Runs one step and counts its tests.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::budgets::Budget;
use super::count::Count;
use super::packed;
use super::steps::{Run, Step};
use crate::arch::Arch;
use crate::layout::Layout;
use crate::refusal::Refusal;
use crate::setup::bare_metal::BareMetal;
use crate::setup::rustup;
use crate::{build, progress, setup};

/// How many lines of a failed step's output are shown; all of them are in the log.
const SHOWN_LINES: usize = 200;

/// A step's budget, and its seconds.
type Given = Option<(&'static Budget, u32)>;

/// Sets up the needs of `step`, runs it to its end, and shows its output if it failed. Returns also what it did with
/// its budget.
pub fn step(layout: &Layout, step: &Step, full: bool, given: Given) -> (Count, Option<String>) {
    match attempt(layout, step, full, given) {
        Ok(result) => result,
        Err(refusal) => {
            eprintln!("x: {}: {refusal}", step.name);
            let count = Count {
                passed: 0,
                failed: 1,
            };
            (count, None)
        }
    }
}

fn attempt(
    layout: &Layout,
    step: &Step,
    full: bool,
    given: Given,
) -> Result<(Count, Option<String>), Refusal> {
    setup::provide(layout, step.needs)?;
    if matches!(step.run, Run::Rooms) {
        let files = super::rooms::check(layout)?;
        eprintln!("x: {files} files, every dependency points down");
        let count = Count {
            passed: 1,
            failed: 0,
        };
        return Ok((count, None));
    }
    let mut command = prepare(layout, &step.run)?;
    if full {
        command.env("FAULTLESS_FULL", "1");
    }
    if let Some((budget, seconds)) = given {
        let share = budget.share(seconds);
        command.env("FAULTLESS_SECONDS", format!("{share:.2}"));
        // The lines of scenarios that pass.
        if !command.get_args().any(|argument| argument == "--") {
            command.arg("--");
        }
        command.arg("--show-output");
    }
    let log = layout.log(&format!("test-{}", step.name));
    let status = progress::run_logged(step.name, &mut command, &log)
        .map_err(|error| Refusal::new(format!("cannot be run: {error}")))?;
    let bytes = fs::read(&log).map_err(|error| Refusal::new(format!("lost its log: {error}")))?;
    let output = String::from_utf8_lossy(&bytes);
    if !status.success() {
        show(&output, &log);
    }
    let did = given.map(|(budget, seconds)| budget.summary(seconds, &output));
    Ok((Count::of(&output, status.success()), did))
}

/// What runs a program for Linux on AArch64, with the C library of the cross-compiler.
const RUNNER: (&str, &str) = (
    "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
    "qemu-aarch64 -L /usr/aarch64-linux-gnu",
);

/// The command of a step, after building all that it uses but does not build itself.
fn prepare(layout: &Layout, run: &Run) -> Result<Command, Refusal> {
    match run {
        Run::Workspace(arguments) => Ok(cargo(layout, arguments)),
        Run::Packed(arguments) => {
            let target = layout.at("target").join("packed");
            packed::forget(&target)?;
            let mut command = cargo(layout, arguments);
            command.env("CARGO_TARGET_DIR", target);
            Ok(command)
        }
        Run::Documented(arguments) => {
            let mut command = cargo(layout, arguments);
            command.env("RUSTDOCFLAGS", "-Dwarnings");
            Ok(command)
        }
        Run::WithCfg(name, arguments) => Ok(with_cfg(layout, name, arguments)),
        Run::OnAArch64(name, arguments) => {
            let mut command = match name {
                Some(name) => with_cfg(layout, name, arguments),
                None => cargo(layout, arguments),
            };
            build::for_linux(&mut command, Arch::AArch64);
            command.env(RUNNER.0, RUNNER.1);
            Ok(command)
        }
        Run::Rooms => Err(Refusal::new("the check of rooms runs no command")),
        Run::KernelClippy(arch) => Ok(clippy_for_the_kernel(layout, *arch)),
        Run::Booted(arch, arguments) => booted(layout, *arch, arguments),
        Run::BootedLong(arch, arguments) => booted(layout, *arch, arguments),
        Run::LinuxTests(family, arguments) => {
            setup::linux_tests::provide(layout, family)?;
            booted(layout, Arch::X86_64, arguments)
        }
        Run::Differential(arch, arguments) => {
            build::executor(layout, *arch)?;
            let command = beside_linux(layout, *arch, &["6.12"], arguments)?;
            setup::linux::provide_modules(layout, "6.12", *arch)?;
            Ok(command)
        }
        Run::Compared(arguments) => {
            let all: Vec<_> = setup::linux::all().collect();
            let command = beside_linux(layout, Arch::X86_64, &all, arguments)?;
            for series in all {
                setup::linux::provide_modules(layout, series, Arch::X86_64)?;
            }
            Ok(command)
        }
    }
}

/// Cargo, with everything that boots our kernel.
fn booted(layout: &Layout, arch: Arch, arguments: &[&str]) -> Result<Command, Refusal> {
    build::kernel(layout, arch)?;
    build::workloads(layout, arch)?;
    let mut command = cargo(layout, arguments);
    if arch == Arch::AArch64 {
        // What the machines are that faultless-tests boots.
        command.env("FAULTLESS_ARCH", "aarch64");
    }
    Ok(command)
}

/// Cargo, with everything that boots our kernel and Debian's kernels.
fn beside_linux(
    layout: &Layout,
    arch: Arch,
    all: &[&str],
    arguments: &[&str],
) -> Result<Command, Refusal> {
    let command = booted(layout, arch, arguments)?;
    build::linux_init(layout, arch)?;
    for series in all {
        setup::linux::provide(layout, series, arch)?;
    }
    Ok(command)
}

fn cargo(layout: &Layout, arguments: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(arguments).current_dir(&layout.root);
    cargo
}

/// Cargo with `--cfg NAME`, in a target folder of its own.
fn with_cfg(layout: &Layout, name: &str, arguments: &[&str]) -> Command {
    let mut command = cargo(layout, arguments);
    command.env("RUSTFLAGS", format!("--cfg {name}"));
    command.env("CARGO_TARGET_DIR", layout.at("target").join(name));
    // Models run for minutes, and are rebuilt often: optimised, but without link-time optimisation.
    command.env("CARGO_PROFILE_RELEASE_LTO", "off");
    command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    command.env("CARGO_PROFILE_RELEASE_DEBUG", "0");
    command
}

/// Clippy comes with rustup only. If rustup has no bare-metal target, the kernel is checked as if for Linux
/// on the same architecture: its code is the same for any such target. If rustup has not that either, Debian's compiler
/// checks it alone: not every machine can download a target.
fn clippy_for_the_kernel(layout: &Layout, arch: Arch) -> Command {
    let mut command = match BareMetal::choose(arch) {
        Ok(toolchain) if toolchain.is_in_use() => toolchain.cargo(layout, "clippy", "").0,
        Ok(toolchain) if !rustup::has(arch.linux()) => {
            return toolchain.cargo(layout, "check", "").0;
        }
        _ => {
            let mut cargo = Command::new("cargo");
            cargo.current_dir(layout.at("kernel"));
            cargo.arg("clippy").args(["--target", arch.linux()]);
            cargo
        }
    };
    command.args(["--", "-Dwarnings"]);
    command
}

fn show(output: &str, log: &Path) {
    let lines: Vec<_> = output.lines().collect();
    let left_out = lines.len().saturating_sub(SHOWN_LINES);
    if left_out > 0 {
        eprintln!("x: {left_out} lines left out, all are in {}", log.display());
    }
    for line in &lines[left_out..] {
        eprintln!("{line}");
    }
}
