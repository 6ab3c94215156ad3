//! The common part of commands that run a program: checks it, builds the request, and passes on how it ended.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::arch::Arch;
use crate::args::MachineArguments;
use crate::machine::{Accel, End, MachineKind, Policy, Request};
use crate::program::Program;
use crate::show::Sink;
use crate::{interrupt, refusal};

/// Refuses a word that cannot be a program, and options that conflict.
pub fn check(on: &MachineArguments, program: &[OsString]) -> Result<()> {
    if on.machine == Some(MachineKind::Soft) && on.accel.is_some() {
        bail!("--accel is for the kernel: the soft machine runs on host threads");
    }
    if on.machine == Some(MachineKind::Soft) && on.arch.is_some() {
        bail!("--arch is for the kernel: the soft machine runs on host threads");
    }
    if on.machine == Some(MachineKind::Soft) && !on.given.is_nothing() {
        bail!("--file, --root and --env are for the kernel: the soft machine has no files");
    }
    if on.machine == Some(MachineKind::Soft) && on.verify {
        bail!("--verify is for the kernel: the soft machine always verifies its address space");
    }
    if let Some(word) = program.first().filter(|word| begins_with_dash(word)) {
        bail!(
            "unexpected argument '{}': --help lists the options",
            word.display()
        );
    }
    Ok(())
}

/// Whether a word is a mistyped option. A program with such a name can be called `./-program`.
fn begins_with_dash(word: &OsStr) -> bool {
    word.as_encoded_bytes().starts_with(b"-")
}

/// The architecture of the machine for a program.
fn arch(on: &MachineArguments, program: &[OsString]) -> Result<Arch> {
    match program.first() {
        Some(name) if on.kind() == MachineKind::Kernel => {
            let root = on.given.root.as_deref();
            Program::find(name, root)?.arch(on.arch, root)
        }
        _ => Ok(on.arch.unwrap_or_default()),
    }
}

/// The request to run a program.
pub fn request(
    on: &MachineArguments,
    program: &[OsString],
    policy: Policy,
    stdout: Sink,
) -> Result<Request> {
    Ok(Request {
        program: program.to_vec(),
        arch: arch(on, program)?,
        policy,
        cpus: if on.icount { 1 } else { on.resources.cpus },
        memory: on.resources.memory,
        swap: on.resources.swap,
        huge: on.resources.huge,
        kvm: on.resources.kvm.clone(),
        atomic_rmw: on.resources.atomic_rmw,
        accel: on.accel.unwrap_or(Accel::Tcg),
        timeout: on.resources.timeout,
        list_unknown: on.list_unknown,
        verify: on.verify,
        count_instructions: on.icount,
        stdout,
        files: on.given.files(true),
    })
}

/// The exit status for how a program ended. Prints a line if it did not end by itself.
pub fn pass_on(end: &End, timeout: Option<Duration>) -> ExitCode {
    ExitCode::from(status(end, timeout))
}

/// The same as a number.
pub fn status(end: &End, timeout: Option<Duration>) -> u8 {
    match end {
        End::Exited(status) => *status,
        End::Signalled(signal) => {
            eprintln!("faultless: the program was killed by signal {signal}");
            128_u8.saturating_add(*signal)
        }
        End::TimedOut => {
            let limit = timeout.unwrap_or_default().as_secs_f64();
            eprintln!("faultless: stopped after {limit} s, as --timeout says");
            refusal::STATUS
        }
        End::Interrupted => {
            eprintln!("faultless: interrupted");
            interrupt::STATUS
        }
        End::Failed(why) => {
            eprintln!("faultless: {why}");
            refusal::STATUS
        }
        End::Refused(_) => refusal::STATUS,
    }
}
