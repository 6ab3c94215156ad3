//! The framework of guard: reporting checks, and the expected results of accesses.
//!
//! A check returns early, with an explanation, at the first violation
//! ([`ensure!`]).

use faultless_mm::{Access, SegvCode};

use crate::system::{End, Fault, Stop, Thread};

/// A check's name and its function.
pub struct Check(pub &'static str, pub Run);

/// The function of a check, run once or for a number of rounds.
pub enum Run {
    /// Once.
    Once(fn(&Thread<'_>) -> Result<(), Failure>),
    /// A race.
    Rounds(fn(&Thread<'_>, u64) -> Result<(), Failure>),
}

/// Why a check returned early.
pub enum Failure {
    /// A violation.
    Explained(String),
    /// The program has ended.
    Stop(Stop),
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Self {
        Failure::Stop(stop)
    }
}

/// Returns from the check with an explanation unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($explanation:tt)+) => {
        if !$condition {
            return Err($crate::guard::check::Failure::Explained(format!($($explanation)+)));
        }
    };
}
pub(crate) use ensure;

impl Check {
    /// Runs it and prints its line; returns whether it passed.
    pub fn run(&self, thread: &Thread<'_>, rounds: u64) -> Result<bool, Stop> {
        let Check(name, run) = self;
        let result = match run {
            Run::Once(check) => check(thread),
            Run::Rounds(check) => check(thread, rounds),
        };
        match result {
            Ok(()) => thread.print(format!("ok - {name}\n")),
            Err(Failure::Explained(why)) => {
                thread.print(format!("not ok - {name}: {why}\n"));
                return Ok(false);
            }
            Err(Failure::Stop(stop)) => return Err(stop),
        }
        Ok(true)
    }
}

/// Tries an access to a byte.
pub fn try_access(thread: &Thread<'_>, access: Access, at: u64) -> Result<Result<(), Fault>, Stop> {
    thread.attempt(|cpu| match access {
        Access::Read => cpu.load_u8(at).map(drop),
        Access::Write => cpu.store_u8(at, 1),
        Access::Execute => cpu.execute(at),
    })
}

fn name(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
        Access::Execute => "execution",
    }
}

/// Checks that the access raises SIGSEGV with this `si_code`, and with its own address as `si_addr`.
pub fn faults(thread: &Thread<'_>, code: SegvCode, access: Access, at: u64) -> Result<(), Failure> {
    let name = name(access);
    let Err(fault) = try_access(thread, access, at)? else {
        return Err(Failure::Explained(format!(
            "{name} of {at:#x} did not fault"
        )));
    };
    let (is, want) = (fault.code as i32, code as i32);
    ensure!(is == want, "{name} of {at:#x}: si_code {is}, not {want}");
    ensure!(
        fault.address == at,
        "{name} of {at:#x}: si_addr {:#x}",
        fault.address
    );
    Ok(())
}

/// Checks that the access is allowed.
pub fn allowed(thread: &Thread<'_>, access: Access, at: u64) -> Result<(), Failure> {
    let result = try_access(thread, access, at)?;
    let code = result.err().map_or(0, |fault| fault.code as i32);
    ensure!(
        code == 0,
        "{} of {at:#x} faulted with si_code {code}",
        name(access)
    );
    Ok(())
}

/// Ends the program like a fault that no check expects.
pub fn unexpected(thread: &Thread<'_>, fault: Fault) -> Stop {
    let (code, address) = (fault.code as i32, fault.address);
    thread.print(format!(
        "not ok - unexpected fault: si_code {code} at {address:#x}\n"
    ));
    thread.process().end(End::Signal(11))
}
