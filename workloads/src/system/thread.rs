//! A thread of a process, on its CPU: accesses, memory calls, and waiting.

use std::time::{Duration, Instant};

use faultless_mm::{Errno, SegvCode};
use faultless_soft::{SoftCpu, SoftSpace, Trap};

use super::process::{End, Process};
use super::slot::Seat;

const SIGSEGV: i32 = 11;
const SIGBUS: i32 = 7;

/// The process has ended: the thread must return.
#[derive(Debug)]
pub struct Stop(pub(super) ());

/// A SIGSEGV, as its handler would see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// `si_code`.
    pub code: SegvCode,
    /// `si_addr`.
    pub address: u64,
}

/// A running thread.
pub struct Thread<'p> {
    process: &'p Process,
    cpu: &'p SoftCpu<'p>,
    seat: &'p Seat<'p>,
}

impl<'p> Thread<'p> {
    pub(super) fn new(process: &'p Process, cpu: &'p SoftCpu<'p>, seat: &'p Seat<'p>) -> Self {
        Self { process, cpu, seat }
    }

    pub(super) fn cpu(&self) -> &'p SoftCpu<'p> {
        self.cpu
    }

    /// Its process.
    pub fn process(&self) -> &'p Process {
        self.process
    }

    /// Tries an access; a SIGSEGV is returned to the caller, which acts as its handler.
    #[inline]
    pub fn attempt<R>(
        &self,
        access: impl FnOnce(&SoftCpu<'_>) -> Result<R, Trap>,
    ) -> Result<Result<R, Fault>, Stop> {
        self.look_up()?;
        match access(self.cpu) {
            Ok(result) => Ok(Ok(result)),
            Err(Trap::Segv { code, address }) => Ok(Err(Fault { code, address })),
            // No workload has a handler for it.
            Err(Trap::Bus { .. } | Trap::Poisoned { .. }) => {
                Err(self.process.end(End::Signal(SIGBUS)))
            }
            Err(Trap::OutOfMemory) => Err(self.process.out_of_memory()),
        }
    }

    /// Makes an access without a handler for its SIGSEGV.
    #[inline]
    fn access<R>(&self, access: impl FnOnce(&SoftCpu<'_>) -> Result<R, Trap>) -> Result<R, Stop> {
        match self.attempt(access)? {
            Ok(result) => Ok(result),
            Err(_) => Err(self.process.end(End::Signal(SIGSEGV))),
        }
    }

    /// Loads a word.
    #[inline]
    pub fn load(&self, at: u64) -> Result<u64, Stop> {
        self.access(|cpu| cpu.load(at))
    }

    /// Stores a word.
    #[inline]
    pub fn store(&self, at: u64, value: u64) -> Result<(), Stop> {
        self.access(|cpu| cpu.store(at, value))
    }

    /// Adds to a word atomically, and returns the value before.
    #[inline]
    pub fn fetch_add(&self, at: u64, value: u64) -> Result<u64, Stop> {
        self.access(|cpu| cpu.fetch_add(at, value))
    }

    /// Loads a byte.
    #[inline]
    pub fn load_u8(&self, at: u64) -> Result<u8, Stop> {
        self.access(|cpu| cpu.load_u8(at))
    }

    /// Stores a byte.
    #[inline]
    pub fn store_u8(&self, at: u64, value: u8) -> Result<(), Stop> {
        self.access(|cpu| cpu.store_u8(at, value))
    }

    /// Loads bytes.
    pub fn load_bytes(&self, at: u64, to: &mut [u8]) -> Result<(), Stop> {
        self.access(|cpu| cpu.load_bytes(at, to))
    }

    /// Stores bytes.
    pub fn store_bytes(&self, at: u64, from: &[u8]) -> Result<(), Stop> {
        self.access(|cpu| cpu.store_bytes(at, from))
    }

    /// Makes a system call on the address space.
    #[inline]
    pub fn call<R>(&self, call: impl FnOnce(&SoftSpace) -> R) -> Result<R, Stop> {
        self.look_up()?;
        Ok(call(self.cpu.space()))
    }

    /// Ends the process with status 1 and a line on stderr that begins with its name.
    pub fn die(&self, why: impl std::fmt::Display) -> Stop {
        let words = format!("{}: {why}\n", self.process.name());
        self.process.end_with(End::Exit(1), words)
    }

    /// Returns the result of a call, or ends the process if it failed.
    pub fn or_die<R>(&self, call: &str, result: Result<R, Errno>) -> Result<R, Stop> {
        result.map_err(|error| self.die(format_args!("{call}: {error}")))
    }

    /// Prints to stdout.
    pub fn print(&self, text: String) {
        self.process.print(text);
    }

    /// Lets another thread run.
    pub fn yield_now(&self) -> Result<(), Stop> {
        self.look_up()?;
        if self.seat.slot().is_wanted() {
            self.away(|| ());
        } else {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Sleeps.
    pub fn sleep(&self, time: Duration) -> Result<(), Stop> {
        // A deadline beyond the clock's range means forever.
        self.wait_until(Instant::now().checked_add(time), || false)
    }

    /// Releases the CPU until `done`, or until `deadline`. The process's bell must ring
    /// when `done` becomes true.
    pub fn wait_until(
        &self,
        deadline: Option<Instant>,
        mut done: impl FnMut() -> bool,
    ) -> Result<(), Stop> {
        let process = self.process;
        self.away(|| process.bell.wait(deadline, || process.is_over() || done()));
        self.look_up()
    }

    /// Runs `wait` off the CPU.
    pub(super) fn away<R>(&self, wait: impl FnOnce() -> R) -> R {
        self.cpu.pause(|| self.seat.lend(wait))
    }

    /// Acts like an interrupt: before each access, checks whether the process has ended
    /// or another thread wants the CPU.
    #[inline]
    pub(super) fn look_up(&self) -> Result<(), Stop> {
        if self.seat.slot().is_called() {
            self.answer()
        } else {
            Ok(())
        }
    }

    #[cold]
    fn answer(&self) -> Result<(), Stop> {
        let slot = self.seat.slot();
        slot.answer();
        if self.process.is_over() {
            // The request stays for the next thread on this CPU.
            slot.call();
            return Err(Stop(()));
        }
        if slot.is_wanted() {
            self.away(|| ());
        }
        if self.process.is_over() {
            Err(Stop(()))
        } else {
            Ok(())
        }
    }
}
