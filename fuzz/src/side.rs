//! Systems that run programs, many at a time.

use std::fmt;

use faultless_mm::{Counter, Policy};

use crate::executor::Mode;
use crate::soft::SoftMachine;
use crate::{Program, Record};

/// The error of a system that did not run all programs.
#[derive(Debug)]
pub struct Stopped {
    /// How many it has certainly run.
    pub after: usize,
    /// The reason.
    pub why: String,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stopped after {} programs: {}", self.after, self.why)
    }
}

/// A system that runs programs.
#[allow(clippy::missing_errors_doc)]
pub trait Side: Send {
    /// Its name.
    fn name(&self) -> &'static str;
    /// The hash of each program's record.
    fn digests(&mut self, programs: &[Program]) -> Result<Vec<u64>, Stopped>;
    /// How many pages have come back from its swap device, if it has one and says so.
    fn swapped_in(&self) -> Option<u64> {
        None
    }
    /// Each program's record.
    fn records(&mut self, programs: &[Program]) -> Result<Vec<Record>, Stopped>;
}

/// The soft machine. The policy of each program is a function of the program.
pub struct SoftSide(SoftMachine);

impl SoftSide {
    /// Starts a new machine.
    ///
    /// # Errors
    /// When the host has no memory for it.
    pub fn start() -> std::io::Result<Self> {
        Ok(SoftSide(SoftMachine::start()?))
    }

    fn run(&self, program: &Program) -> Record {
        let mut bytes = Vec::new();
        crate::encode(program, &mut bytes);
        let number = crate::executor::hash_of(&bytes, 0) as usize;
        self.0.run(program, Policy::ALL[number % Policy::ALL.len()])
    }
}

impl Side for SoftSide {
    fn name(&self) -> &'static str {
        "soft"
    }

    fn swapped_in(&self) -> Option<u64> {
        Some(self.0.total(Counter::SwapIn))
    }

    fn digests(&mut self, programs: &[Program]) -> Result<Vec<u64>, Stopped> {
        Ok(programs
            .iter()
            .map(|program| self.run(program).digest())
            .collect())
    }

    fn records(&mut self, programs: &[Program]) -> Result<Vec<Record>, Stopped> {
        Ok(programs.iter().map(|program| self.run(program)).collect())
    }
}

/// Parses the output of an executor for `count` programs.
///
/// # Errors
/// When the output is incomplete; `why` is the reason.
pub fn read_digests(text: &str, count: usize, why: &str) -> Result<Vec<u64>, Stopped> {
    let digests = text
        .lines()
        .map_while(|line| u64::from_str_radix(line, 16).ok());
    whole(digests.collect(), text, Mode::Digest, count, why)
}

/// The same in detail mode.
///
/// # Errors
/// When the output is incomplete; `why` is the reason.
pub fn read_records(text: &str, count: usize, why: &str) -> Result<Vec<Record>, Stopped> {
    whole(Record::parse_all(text), text, Mode::Detail, count, why)
}

fn whole<T>(
    all: Vec<T>,
    text: &str,
    mode: Mode,
    count: usize,
    why: &str,
) -> Result<Vec<T>, Stopped> {
    if all.len() == count && text.ends_with("that is all\n") {
        return Ok(all);
    }
    Err(Stopped {
        after: all.len(),
        why: format!(
            "{} of {count} programs in {}: {why}",
            all.len(),
            mode.name()
        ),
    })
}
