//! `faultless fuzz`.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use comfy_table::Cell;
use faultless_fuzz::host::HostSide;
use faultless_fuzz::side::{Side, SoftSide};
use faultless_fuzz::{Arch as Of, Program, corpus, differences, draw};

use crate::arch::Arch;
use crate::args::{DifferentialArguments, FuzzArguments, FuzzCommand, SystemName};
use crate::compare::{Peer, Series};
use crate::fuzz::{Campaign, Found, GuestSide};
use crate::interrupt;
use crate::machine::kernel::qemu;
use crate::paths;
use crate::plan::{self, Need, Urgency};
use crate::report::{Destination, FuzzFile};
use crate::show::Sink;
use crate::table::{self, grouped};

/// Looks for differences until a limit is reached or the user interrupts it.
pub fn command(arguments: &FuzzArguments) -> Result<ExitCode> {
    match &arguments.command {
        FuzzCommand::Differential(arguments) => differential(arguments),
    }
}

fn differential(arguments: &DifferentialArguments) -> Result<ExitCode> {
    if let Some(json) = &arguments.json {
        json.check()?;
    }
    let mut fixed = fixed_programs(arguments.program.as_deref())?;
    let systems = systems(arguments)?;
    let arch = Of::from(arguments.arch);
    let comparable = |program| match systems.contains(&SystemName::Linux) {
        true => differences::without_missing(program, arch),
        false => program,
    };
    fixed = fixed.into_iter().map(comparable).collect();
    if let Some(answer) = plan::answer(&needs(systems, arguments.arch), Urgency::Required) {
        return Ok(answer);
    }
    interrupt::install()?;
    let mut campaign = campaign(arguments, systems)?;
    let seed = arguments.seed.unwrap_or_else(another);
    let mut run = Run {
        arguments,
        seed,
        start: Instant::now(),
    };
    eprintln!(
        "faultless: seed {seed}, {} programs that are kept",
        fixed.len()
    );
    let is_fixed = arguments.program.is_some() || arguments.operations == Some(0);
    let mut number = u64::from(seed) << 32;
    let mut programs = fixed;
    loop {
        if !is_fixed {
            let random = (number..).take(batch(arguments));
            let random = random.map(|number| draw::program_for(arch, number));
            programs.extend(random.map(comparable));
            number += arguments.batch.get();
        }
        run.batch(&mut campaign, &programs)?;
        programs.clear();
        if is_fixed || run.is_over(&campaign) {
            return run.report(&campaign);
        }
    }
}

/// A campaign under way.
struct Run<'a> {
    arguments: &'a DifferentialArguments,
    seed: u32,
    start: Instant,
}

impl Run<'_> {
    fn batch(&mut self, campaign: &mut Campaign, programs: &[Program]) -> Result<()> {
        let before = campaign.operations;
        let begun = Instant::now();
        campaign.batch(programs, &mut |Found(finding)| {
            eprintln!(
                "faultless: {} differs from {} at: {}\n  ours: {}\n  Linux: {}\n{}",
                finding.side,
                finding.against,
                finding.at,
                finding.ours,
                finding.theirs,
                finding.program
            );
        })?;
        let rate = (campaign.operations - before) as f64 / begun.elapsed().as_secs_f64();
        eprintln!(
            "faultless: {} operations compared, {}/s, {} differences of {} kinds",
            grouped(campaign.operations),
            grouped(rate as u64),
            differences(campaign),
            campaign.findings.len()
        );
        match &self.arguments.json {
            Some(json @ Destination::File(_)) => json.write(&self.file(campaign)),
            _ => Ok(()),
        }
    }

    fn is_over(&self, campaign: &Campaign) -> bool {
        let late = |limit| self.start.elapsed() >= limit;
        interrupt::is_requested()
            || self
                .arguments
                .operations
                .is_some_and(|limit| campaign.operations >= limit)
            || self.arguments.seconds.is_some_and(late)
    }

    fn file<'a>(&self, campaign: &'a Campaign) -> FuzzFile<'a> {
        let seconds = self.start.elapsed().as_secs_f64();
        let counts = (campaign.programs, campaign.operations);
        FuzzFile::new(
            self.arguments.arch,
            self.seed,
            seconds,
            counts,
            &campaign.sides,
            &campaign.findings,
        )
    }

    fn report(&self, campaign: &Campaign) -> Result<ExitCode> {
        let seconds = self.start.elapsed().as_secs_f64();
        eprintln!(
            "faultless: in all {} operations of {} programs on {} systems in {seconds:.0} s, \
             {}/s; {} programs differ, in {} ways",
            grouped(campaign.operations),
            grouped(campaign.programs),
            campaign.sides.len() + 1,
            grouped((campaign.operations as f64 / seconds.max(0.001)) as u64),
            grouped(differences(campaign)),
            campaign.findings.len()
        );
        if self.arguments.json == Some(Destination::Stdout) {
            Destination::Stdout.write(&self.file(campaign))?;
        } else {
            let header = [
                "system",
                "compared with",
                "operations",
                "differences",
                "left out",
                "operations/s",
            ];
            let mut table = table::new(header.into_iter().map(Cell::new).collect());
            for side in &campaign.sides {
                let rate = side.operations as f64 / side.seconds.max(0.001);
                table.add_row([
                    Cell::new(side.name),
                    Cell::new(side.against),
                    table::number(grouped(side.operations)),
                    table::number(grouped(side.differences)),
                    table::number(grouped(side.left_out.values().sum())),
                    table::number(grouped(rate as u64)),
                ]);
            }
            // A closed stdout is no error.
            let _ = Sink::Stdout.write(format!("{table}\n").as_bytes());
        }
        if !campaign.findings.is_empty() {
            return Ok(ExitCode::FAILURE);
        }
        if interrupt::is_requested() {
            eprintln!("faultless: interrupted");
            return Ok(ExitCode::from(interrupt::STATUS));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn differences(campaign: &Campaign) -> u64 {
    campaign.sides.iter().map(|side| side.differences).sum()
}

fn batch(arguments: &DifferentialArguments) -> usize {
    usize::try_from(arguments.batch.get()).unwrap_or(usize::MAX)
}

/// The stored programs, or those of the user's file.
fn fixed_programs(file: Option<&Path>) -> Result<Vec<Program>> {
    let Some(file) = file else {
        let kept = corpus::read(&paths::corpus()).map_err(anyhow::Error::msg)?;
        return Ok(kept.into_iter().map(|kept| kept.program).collect());
    };
    let name = || file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(name)?;
    let programs = Program::parse_all(&text).map_err(anyhow::Error::msg);
    let programs = programs.with_context(name)?;
    ensure!(
        !programs.is_empty(),
        "{}: there is no program in it",
        file.display()
    );
    Ok(programs)
}

fn is_linux(system: SystemName) -> bool {
    matches!(system, SystemName::Host | SystemName::Linux)
}

/// The systems that are compared.
fn systems(arguments: &DifferentialArguments) -> Result<&[SystemName]> {
    let all = SystemName::all(arguments.arch);
    if arguments.against.is_empty() {
        return Ok(all);
    }
    let systems = &arguments.against;
    for system in systems {
        ensure!(
            all.contains(system),
            "--against: {} cannot be compared with --arch {}",
            system.name(),
            arguments.arch.name()
        );
    }
    let linux = systems.iter().any(|&system| is_linux(system));
    ensure!(
        linux,
        "--against: name a Linux to compare with, host or linux-6.12"
    );
    ensure!(
        systems.len() > 1,
        "--against: name what is to be compared with it"
    );
    Ok(systems)
}

fn needs(systems: &[SystemName], arch: Arch) -> Vec<Need> {
    let mut needs = Vec::new();
    if systems.iter().any(|&system| system != SystemName::Soft) {
        needs.push(Need::Executor(arch));
    }
    if systems.contains(&SystemName::Linux) || systems.contains(&SystemName::Faultless) {
        needs.push(Need::Qemu(arch));
    }
    if systems.contains(&SystemName::Faultless) {
        needs.push(Need::Kernel(arch));
    }
    if systems.contains(&SystemName::Linux) {
        needs.extend([
            Need::LinuxInit(arch),
            Need::Linux(Series::V6_12, arch),
            Need::LinuxModules(Series::V6_12, arch),
        ]);
    }
    needs
}

fn campaign(arguments: &DifferentialArguments, systems: &[SystemName]) -> Result<Campaign> {
    let (arch, cpus) = (arguments.arch, arguments.cpus);
    let mut linux: Option<Box<dyn Side>> = None;
    let mut others: Vec<Box<dyn Side>> = Vec::new();
    let has = |system| systems.contains(&system);
    if has(SystemName::Linux) {
        qemu::check(arch)?;
        let peer = Peer::find(Series::V6_12, arch)?;
        linux = Some(Box::new(GuestSide::new(Some(peer), arch, cpus)?));
    }
    if has(SystemName::Host) {
        let host: Box<dyn Side> = Box::new(HostSide::new(&paths::executor(arch)));
        match linux {
            None => linux = Some(host),
            // A difference between the two Linux kernels shows how much weight a difference of ours has.
            Some(_) => others.push(host),
        }
    }
    if has(SystemName::Faultless) {
        qemu::check(arch)?;
        others.push(Box::new(GuestSide::new(None, arch, cpus)?));
    }
    if has(SystemName::Soft) {
        others.push(Box::new(SoftSide::start().context("the soft machine")?));
    }
    let oracle = linux.context("there is no Linux to compare with")?;
    Ok(Campaign::new(oracle, others, !arguments.no_shrink))
}

fn another() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(1, |now| now.as_secs() as u32 ^ now.subsec_nanos())
}
