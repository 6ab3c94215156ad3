//! What commands that run a program have in common: checking it, asking for it, passing on how it
//! ended.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::args::MachineArguments;
use crate::machine::{Accel, End, MachineKind, Policy, Request};
use crate::show::Sink;
use crate::{interrupt, refusal};

/// Refuses what can be no program, and options that do not go together.
pub fn check(on: &MachineArguments, program: &[OsString]) -> Result<()> {
    if on.machine == Some(MachineKind::Soft) && on.accel.is_some() {
        bail!("--accel is for the kernel: the soft machine runs on host threads");
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

/// A mistyped option is no program; one that begins so can be named by `./-program`.
fn begins_with_dash(word: &OsStr) -> bool {
    word.as_encoded_bytes().starts_with(b"-")
}

/// A run of a program.
pub fn request(
    on: &MachineArguments,
    program: &[OsString],
    policy: Policy,
    stdout: Sink,
) -> Request {
    Request {
        program: program.to_vec(),
        policy,
        cpus: on.resources.cpus,
        memory: on.resources.memory,
        accel: on.accel.unwrap_or(Accel::Tcg),
        timeout: on.resources.timeout,
        list_unknown: on.list_unknown,
        verify: on.verify,
        count_instructions: false,
        stdout,
        files: on.given.files(true),
    }
}

/// The exit status that tells how a program ended, with a line where it did not by itself.
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
