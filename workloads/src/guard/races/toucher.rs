//! The thread that accesses a page continuously.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use faultless_mm::{SegvCode, advice};
use faultless_soft::{SoftCpu, Trap};

use crate::guard::check::Failure;
use crate::guard::pages::{RW, advise, map_over};
use crate::system::{Fault, PAGE, Stop, Thread};

/// How long one thread waits for the other.
const PATIENCE: Duration = Duration::from_secs(20);
const WORD: u64 = 8;
const WORDS: u64 = PAGE / WORD;

/// The toucher's state, shared by both threads.
pub struct Toucher {
    page: u64,
    /// The `si_code` that its faults must have; none if it must not fault.
    code: Option<SegvCode>,
    stop: AtomicBool,
    /// The first error.
    wrong: OnceLock<&'static str>,
    faults: Count,
    /// Accesses completed.
    done: Count,
}

/// A counter in cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct Count(AtomicU64);

type Handler = fn(&Toucher, &Thread<'_>, Fault) -> Result<(), Stop>;

/// Runs `touch` on another thread while `change` changes its page, to the end of both.
pub fn race(
    thread: &Thread<'_>,
    toucher: &Toucher,
    touch: fn(&Toucher, &Thread<'_>) -> Result<(), Stop>,
    change: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    thread.team(|team| {
        let started = team.start(1, |thread| touch(toucher, thread));
        started.map_err(|e| thread.die(format_args!("cannot start a thread: {e}")))?;
        let result = change();
        if result.is_err() {
            // So that the toucher can end.
            let _ = map_over(thread, toucher.page, 1, RW)?;
        }
        toucher.stop.store(true, Ordering::SeqCst);
        result
    })?;
    toucher
        .wrong
        .get()
        .map_or(Ok(()), |wrong| Err(Failure::Explained((*wrong).to_owned())))
}

impl Toucher {
    /// A toucher that has not started.
    pub fn new(page: u64, code: Option<SegvCode>) -> Self {
        Self {
            page,
            code,
            stop: AtomicBool::new(false),
            wrong: OnceLock::new(),
            faults: Count::default(),
            done: Count::default(),
        }
    }

    /// The number of its faults.
    pub fn faults(&self) -> u64 {
        self.faults.0.load(Ordering::SeqCst)
    }

    /// The number of its completed accesses.
    pub fn done(&self) -> u64 {
        self.done.0.load(Ordering::SeqCst)
    }

    /// Waits for more faults; returns whether there were any.
    pub fn faults_beyond(&self, thread: &Thread<'_>, value: u64) -> Result<bool, Stop> {
        self.wait_beyond(thread, &self.faults, value)
    }

    /// Waits for more accesses; returns whether there were any.
    pub fn done_beyond(&self, thread: &Thread<'_>, value: u64) -> Result<bool, Stop> {
        self.wait_beyond(thread, &self.done, value)
    }

    fn wait_beyond(&self, thread: &Thread<'_>, count: &Count, value: u64) -> Result<bool, Stop> {
        let start = Instant::now();
        while count.0.load(Ordering::SeqCst) <= value {
            if start.elapsed() > PATIENCE || self.wrong.get().is_some() {
                return Ok(false);
            }
            thread.yield_now()?;
        }
        Ok(true)
    }

    fn complain(&self, what: &'static str) {
        // Only the first error is kept.
        let _ = self.wrong.set(what);
    }

    /// Repeats an access until it succeeds.
    fn access<R>(
        &self,
        thread: &Thread<'_>,
        handler: Handler,
        access: impl Fn(&SoftCpu<'_>) -> Result<R, Trap>,
    ) -> Result<R, Stop> {
        loop {
            match thread.attempt(&access)? {
                Ok(result) => return Ok(result),
                Err(fault) => handler(self, thread, fault)?,
            }
        }
    }

    /// The usual handler: checks and counts the fault, and yields to the other thread.
    fn try_again(&self, thread: &Thread<'_>, fault: Fault) -> Result<(), Stop> {
        if self.code.is_none() {
            self.complain("an access faulted that is always allowed");
        } else if self.code != Some(fault.code) {
            self.complain("a fault had another si_code");
        } else if !(self.page..self.page + PAGE).contains(&fault.address) {
            self.complain("a fault had another si_addr");
        }
        self.faults.0.fetch_add(1, Ordering::SeqCst);
        thread.yield_now()?;
        if self.wrong.get().is_some() {
            // So that the access can end.
            let _ = map_over(thread, self.page, 1, RW)?;
        }
        Ok(())
    }

    /// Another handler: makes the page writable again.
    fn flip_back(&self, thread: &Thread<'_>, fault: Fault) -> Result<(), Stop> {
        if fault.code != SegvCode::AccErr {
            self.complain("a fault had another si_code");
        }
        self.faults.0.fetch_add(1, Ordering::SeqCst);
        // If the mapping is gone, the access faults again.
        let _ = thread.call(|space| space.mprotect(self.page, PAGE, RW))?;
        Ok(())
    }

    /// Calls `step` with 1, 2, 3, ... until `stop` is set.
    fn each(&self, mut step: impl FnMut(u64) -> Result<(), Stop>) -> Result<(), Stop> {
        let mut i = 1;
        while !self.stop.load(Ordering::SeqCst) {
            step(i)?;
            self.done.0.store(i, Ordering::SeqCst);
            i += 1;
        }
        Ok(())
    }

    fn word(&self, number: u64) -> u64 {
        self.page + number % WORDS * WORD
    }

    fn write(&self, thread: &Thread<'_>, handler: Handler) -> Result<(), Stop> {
        self.each(|i| {
            let word = self.word(i);
            self.access(thread, handler, |cpu| cpu.store(word, i))?;
            if self.access(thread, handler, |cpu| cpu.load(word))? != i {
                self.complain("a write was lost");
            }
            Ok(())
        })
    }

    /// Writes 1, 2, 3, ... to the words of the page in turn, and reads each back.
    pub fn write_words(&self, thread: &Thread<'_>) -> Result<(), Stop> {
        self.write(thread, Toucher::try_again)
    }

    /// The same, with the handler that repairs.
    pub fn write_words_and_flip_back(&self, thread: &Thread<'_>) -> Result<(), Stop> {
        self.write(thread, Toucher::flip_back)
    }

    /// Whether the page contains the last writes of the two functions above.
    pub fn words_are_there(&self, thread: &Thread<'_>) -> Result<bool, Stop> {
        let done = self.done();
        for i in done.saturating_sub(WORDS) + 1..=done {
            if thread.load(self.word(i))? != i {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads the first byte continuously.
    pub fn read_word(&self, thread: &Thread<'_>) -> Result<(), Stop> {
        self.each(|_| {
            self.access(thread, Toucher::try_again, |cpu| cpu.load_u8(self.page))
                .map(drop)
        })
    }

    /// Writes 1, 2, 3, ... to the first word.
    pub fn write_first_word(&self, thread: &Thread<'_>) -> Result<(), Stop> {
        self.each(|i| self.access(thread, Toucher::try_again, |cpu| cpu.store(self.page, i)))
    }

    /// Discards the page and writes it again, over and over.
    pub fn refault(&self, thread: &Thread<'_>) -> Result<(), Stop> {
        let load = || self.access(thread, Toucher::try_again, |cpu| cpu.load(self.page));
        self.each(|i| {
            // The load below checks its effect.
            let _ = advise(thread, self.page, 1, advice::DONTNEED)?;
            if load()? != 0 {
                self.complain("old contents after MADV_DONTNEED");
            }
            self.access(thread, Toucher::try_again, |cpu| cpu.store(self.page, i))?;
            if load()? != i {
                self.complain("a write was lost");
            }
            Ok(())
        })
    }
}
