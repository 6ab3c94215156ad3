//! Figures of the kernel in QEMU.
//!
//! Under `-icount` with shift 0 every guest instruction takes 1 ns of the guest's clock, exactly
//! and repeatably. So a program that prints how much it does in a second of its own clock says
//! how many instructions it needs: 10⁹ divided by that.

use anyhow::{Context as _, Result, bail};

use super::Samples;
use crate::arch::Arch;
use crate::machine::kernel::System;
use crate::machine::{Accel, End, Files, Outcome, Policy, Request};
use crate::show::{Kept, Sink};
use crate::size::Size;

const INSTRUCTIONS_PER_SECOND: f64 = 1e9;

/// Instructions per fault: page_fault1 touches pages and unmaps them, nothing else.
pub fn instructions_per_fault(arch: Arch) -> Result<Samples> {
    instructions_per_figure(arch, &["page_fault1", "-s", "3"])
}

/// Instructions per record of ebizzy as it was published.
pub fn instructions_per_record(arch: Arch) -> Result<Samples> {
    instructions_per_figure(arch, &["ebizzy", "-mTRp", "-t", "2", "-S", "3"])
}

/// Instructions with events off, divided by those of a kernel without events; a sample for each of a few
/// workloads.
pub fn tracing_off_vs_compiled_out(arch: Arch) -> Result<Samples> {
    let programs: [&[&str]; 2] = [
        &["page_fault1", "-s", "3"],
        &["ebizzy", "-mTRp", "-t", "2", "-S", "3"],
    ];
    let ratio = |program: &&[&str]| {
        let off = figure_of(arch, System::ours(arch)?, program)?;
        let out = figure_of(arch, System::without_events(arch)?, program)?;
        // The figures are rates, so this is the ratio of instructions per operation, off to out.
        Ok(out / off)
    };
    Samples::new(programs.iter().map(ratio).collect::<Result<_>>()?)
}

/// Speculative share with 2 CPUs.
pub fn share_speculative_2_cpus(arch: Arch) -> Result<Samples> {
    share_speculative(arch, 2)
}

/// Speculative share with 4 CPUs.
pub fn share_speculative_4_cpus(arch: Arch) -> Result<Samples> {
    share_speculative(arch, 4)
}

/// One sample: the clock counts instructions, so another run gives the same.
fn instructions_per_figure(arch: Arch, program: &[&str]) -> Result<Samples> {
    let figure = figure_of(arch, System::ours(arch)?, program)?;
    Samples::new(vec![INSTRUCTIONS_PER_SECOND / figure])
}

/// How much a program does in 10⁹ instructions on one CPU.
fn figure_of(arch: Arch, system: System, program: &[&str]) -> Result<f64> {
    // The same random numbers each time.
    let system = System {
        seed: Some(0),
        ..system
    };
    let outcome = run(arch, &system, program, 1, true, Sink::Nowhere)?;
    let figure = outcome.figure.context("the program printed no figure")?;
    Ok(figure.value)
}

fn share_speculative(arch: Arch, cpus: u32) -> Result<Samples> {
    let sample = || {
        let outcome = run(
            arch,
            &System::ours(arch)?,
            &["ebizzy", "-mTRp", "-t", "8", "-S", "2"],
            cpus,
            false,
            Sink::Nowhere,
        )?;
        outcome
            .counters
            .share_speculative()
            .context("the program took no faults")
    };
    Samples::new((0..5).map(|_| sample()).collect::<Result<_>>()?)
}

/// The output of a program on one CPU with a clock that counts instructions.
pub fn output_of(arch: Arch, program: &[&str]) -> Result<String> {
    static KEPT: Kept = Kept::new();
    let system = System {
        seed: Some(0),
        ..System::ours(arch)?
    };
    run(arch, &system, program, 1, true, Sink::Kept(&KEPT))?;
    Ok(String::from_utf8_lossy(&KEPT.take()).into_owned())
}

fn run(
    arch: Arch,
    system: &System,
    program: &[&str],
    cpus: u32,
    count_instructions: bool,
    stdout: Sink,
) -> Result<Outcome> {
    let request = Request {
        program: program.iter().map(Into::into).collect(),
        arch,
        policy: Policy::Speculative,
        cpus,
        memory: Size::mebi(1024),
        swap: None,
        huge: crate::huge::Huge::Never,
        kvm: None,
        atomic_rmw: true,
        accel: Accel::Tcg,
        timeout: None,
        list_unknown: false,
        verify: false,
        count_instructions,
        stdout,
        files: Files::default(),
    };
    let outcome = system.boot(&request)?.outcome;
    match &outcome.end {
        End::Exited(0) => Ok(outcome),
        End::Failed(why) | End::Refused(why) => bail!("{}: {why}", program[0]),
        other => bail!("{} ended badly: {other:?}", program[0]),
    }
}
