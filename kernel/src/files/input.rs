//! Standard input: what the command has read from its own standard input.
//!
//! The kernel asks for input only when a program wants some. Input that no program reads stays for the next
//! reader of the command's standard input. If no input is here, the kernel sends one byte to the command over
//! the serial port. The command answers with the length of one piece, in four bytes, the lowest first. A
//! length of 0 is the end of input. One read reports the end; the next read asks again, because a terminal
//! goes on after its end.
//!
//! The piece itself is then in the window, memory that the command writes until it has answered and the
//! kernel reads until it asks again. Without a window, the piece follows on the wire. Without a serial port,
//! or if the command says so (`stdin=0`), input is always at its end.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::copy;
use super::readiness::{Events, Readiness};
use super::turn::Turn;
use crate::arch::{serial, window};
use crate::errno::{Answer, EAGAIN, RESTART};
use crate::sched;
use crate::sched::wait::{self, Interruptible, Woken};
use crate::sync::SpinLock;

/// Asks for a piece in the window.
const INTO_THE_WINDOW: u8 = b'W';
/// Asks for a piece of at most [`ON_THE_WIRE_MOST`] bytes on the wire.
const ON_THE_WIRE: u8 = b'R';
const ON_THE_WIRE_MOST: usize = 4096;

/// What the next byte from the command means.
#[derive(Clone, Copy)]
enum Expected {
    /// No piece was asked for.
    Nothing,
    /// A byte of the length: the length so far, and the number of its bytes received.
    Length(u32, u32),
    /// A byte of the piece: the number of bytes still to come.
    Content(usize),
}

struct State {
    /// A piece received on the wire.
    bytes: [u8; ON_THE_WIRE_MOST],
    /// The unread part of the piece.
    start: usize,
    end: usize,
    expected: Expected,
    /// Whether the end of input was received, and not yet reported by a read.
    ended: bool,
}

static STATE: SpinLock<State> = SpinLock::new(State {
    bytes: [0; ON_THE_WIRE_MOST],
    start: 0,
    end: 0,
    expected: Expected::Nothing,
    ended: false,
});
static READINESS: Readiness = Readiness::new();
/// Serialises reads, so that each gets consecutive bytes.
static TURN: Turn = Turn::new();
/// Threads that sleep until input comes, on this word's address.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// Whether the command says that there is no input: its end of the port does not answer.
static IS_EMPTY: AtomicBool = AtomicBool::new(false);

/// From here on input is always at its end.
pub fn is_empty() {
    IS_EMPTY.store(true, Ordering::Relaxed);
}

fn is_there() -> bool {
    serial::is_there() && !IS_EMPTY.load(Ordering::Relaxed)
}

fn key() -> u64 {
    &raw const WAITING as u64
}

impl State {
    /// Whether a read need not wait. A piece counts only once all of it is here.
    fn is_ready(&self) -> bool {
        matches!(self.expected, Expected::Nothing) && (self.start != self.end || self.ended)
    }

    /// Asks for a piece, if none is here or on its way.
    fn ask(&mut self) {
        if !self.is_ready() && matches!(self.expected, Expected::Nothing) {
            (self.start, self.end) = (0, 0);
            self.expected = Expected::Length(0, 0);
            serial::send(if window::is_there() {
                INTO_THE_WINDOW
            } else {
                ON_THE_WIRE
            });
        }
    }

    /// Processes a received byte.
    fn accept(&mut self, byte: u8) {
        self.expected = match self.expected {
            Expected::Nothing => Expected::Nothing,
            Expected::Length(length, count) => {
                let length = length | u32::from(byte) << (8 * count);
                if count < 3 {
                    Expected::Length(length, count + 1)
                } else {
                    self.begin_piece(length as usize)
                }
            }
            Expected::Content(left) => {
                self.bytes[self.end] = byte;
                self.end += 1;
                if left > 1 {
                    Expected::Content(left - 1)
                } else {
                    Expected::Nothing
                }
            }
        };
    }

    fn begin_piece(&mut self, length: usize) -> Expected {
        self.ended = length == 0;
        if window::is_there() {
            self.end = length.min(window::SIZE);
            return Expected::Nothing;
        }
        match length.min(ON_THE_WIRE_MOST) {
            0 => Expected::Nothing,
            length => Expected::Content(length),
        }
    }

    /// Copies bytes that are here. Returns how many.
    fn take(&mut self, to: &mut [u8]) -> usize {
        let (start, end) = (self.start, self.end);
        let length = to.len().min(end - start);
        if window::is_there() {
            window::read(start, &mut to[..length]);
        } else {
            to[..length].copy_from_slice(&self.bytes[start..start + length]);
        }
        self.start += length;
        length
    }
}

/// The port's interrupt: processes all received bytes.
pub fn interrupt() {
    let ready = {
        let mut state = STATE.lock();
        while let Some(byte) = serial::receive() {
            state.accept(byte);
        }
        state.is_ready()
    };
    if ready {
        if WAITING.load(Ordering::SeqCst) != 0 {
            wait::wake_address(key(), u32::MAX, u32::MAX);
        }
        READINESS.changed(Events::READABLE);
    }
}

/// Reads input into user memory. If none is here, sleeps if it may. Returns 0 at the end of input.
///
/// # Errors
/// `EFAULT`, `EAGAIN`, or a signal came.
pub fn read(to: u64, length: u64, may_wait: bool) -> Answer {
    if !is_there() || length == 0 {
        return Ok(0);
    }
    loop {
        let turn = TURN.take()?;
        let (ready, at_end) = {
            let mut state = STATE.lock();
            state.ask();
            let ready = state.is_ready();
            let at_end = ready && core::mem::take(&mut state.ended);
            (ready, at_end)
        };
        if at_end {
            return Ok(0);
        }
        if ready {
            return copy::scatter(to, length, |piece| STATE.lock().take(piece));
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

/// The events that are ready now. A caller that asks wants input, so this asks the command for a piece.
pub fn events() -> Events {
    if !is_there() {
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
