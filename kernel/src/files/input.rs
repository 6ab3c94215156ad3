//! Standard input: what the command has read from its own.
//!
//! Nothing comes unasked, so that a program that does not read takes nothing away from whoever
//! reads after it. When a program wants input and none is here, one byte, [`REQUEST`], goes to the
//! command, which answers with one piece: its length in two bytes, the lower one first, and then
//! so many bytes. A length of 0 is the end of input. It is told to one read; the next one asks
//! again, because a terminal goes on after its end.
//!
//! Without a serial port input is always at its end.

use core::sync::atomic::{AtomicU32, Ordering};

use super::copy;
use super::readiness::{Events, Readiness};
use super::turn::Turn;
use crate::arch::serial;
use crate::errno::{Answer, EAGAIN, RESTART};
use crate::sched;
use crate::sched::wait::{self, Interruptible, Woken};
use crate::sync::SpinLock;

/// Asks for a piece.
const REQUEST: u8 = b'R';
/// The longest piece.
const LONGEST: usize = 4096;

/// What a piece's next byte is.
#[derive(Clone, Copy)]
enum Expected {
    /// Nothing is: no piece was asked for.
    Nothing,
    LengthLow,
    LengthHigh(u8),
    /// One of so many.
    Content(usize),
}

struct State {
    bytes: [u8; LONGEST],
    start: usize,
    end: usize,
    expected: Expected,
    /// The end of input has come, and no read was told.
    ended: bool,
}

static STATE: SpinLock<State> = SpinLock::new(State {
    bytes: [0; LONGEST],
    start: 0,
    end: 0,
    expected: Expected::Nothing,
    ended: false,
});
static READINESS: Readiness = Readiness::new();
/// One read at a time, so that each gets bytes that follow one another.
static TURN: Turn = Turn::new();
/// Threads that sleep until input comes, on this word's address.
static WAITING: AtomicU32 = AtomicU32::new(0);

fn key() -> u64 {
    &raw const WAITING as u64
}

impl State {
    fn is_ready(&self) -> bool {
        self.start != self.end || self.ended
    }

    /// Asks for more, if there is nothing and nothing is on its way.
    fn ask(&mut self) {
        if !self.is_ready() && matches!(self.expected, Expected::Nothing) {
            (self.start, self.end) = (0, 0);
            self.expected = Expected::LengthLow;
            serial::send(REQUEST);
        }
    }

    /// Takes in a byte; whether there is something to read now.
    fn accept(&mut self, byte: u8) -> bool {
        self.expected = match self.expected {
            Expected::Nothing => Expected::Nothing,
            Expected::LengthLow => Expected::LengthHigh(byte),
            Expected::LengthHigh(low) => {
                let length = usize::from(u16::from_le_bytes([low, byte])).min(LONGEST);
                self.ended = length == 0;
                if length == 0 {
                    Expected::Nothing
                } else {
                    Expected::Content(length)
                }
            }
            Expected::Content(left) => {
                self.bytes[self.end] = byte;
                self.end += 1;
                if left == 1 {
                    Expected::Nothing
                } else {
                    Expected::Content(left - 1)
                }
            }
        };
        self.is_ready()
    }
}

/// The port's interrupt: takes in all that has come.
pub fn interrupt() {
    let mut ready = false;
    {
        let mut state = STATE.lock();
        while let Some(byte) = serial::receive() {
            ready |= state.accept(byte);
        }
    }
    if ready {
        if WAITING.load(Ordering::SeqCst) != 0 {
            wait::wake_address(key(), u32::MAX, u32::MAX);
        }
        READINESS.changed(Events::READABLE);
    }
}

/// Reads into user memory what is here; if nothing is, sleeps if it may; 0 at the end.
///
/// # Errors
/// `EFAULT`, `EAGAIN`, or a signal came.
pub fn read(to: u64, length: u64, may_wait: bool) -> Answer {
    if !serial::is_there() || length == 0 {
        return Ok(0);
    }
    loop {
        let turn = TURN.take();
        let (ready, at_end) = {
            let mut state = STATE.lock();
            state.ask();
            let at_end = state.start == state.end && core::mem::take(&mut state.ended);
            (state.is_ready(), at_end)
        };
        if at_end {
            return Ok(0);
        }
        if ready {
            return copy::scatter(to, length, take);
        }
        drop(turn);
        if !may_wait {
            return Err(EAGAIN);
        }
        WAITING.fetch_add(1, Ordering::SeqCst);
        let nothing = || Ok(!STATE.lock().is_ready());
        let woken = wait::sleep(key(), u32::MAX, None, Interruptible::Yes, nothing);
        WAITING.fetch_sub(1, Ordering::SeqCst);
        if woken? == Some(Woken::Signal) && sched::current().is_interrupted() {
            return Err(RESTART);
        }
    }
}

/// Takes bytes that are here; how many.
fn take(to: &mut [u8]) -> usize {
    let mut state = STATE.lock();
    let (start, end) = (state.start, state.end);
    let length = to.len().min(end - start);
    to[..length].copy_from_slice(&state.bytes[start..start + length]);
    state.start += length;
    length
}

/// What can be done without waiting. Whoever wants to know wants input, so it is asked for.
pub fn events() -> Events {
    if !serial::is_there() {
        return Events::READABLE;
    }
    let mut state = STATE.lock();
    state.ask();
    let mut events = Events::empty();
    events.set(Events::READABLE, state.is_ready());
    events
}

pub fn readiness() -> &'static Readiness {
    &READINESS
}
