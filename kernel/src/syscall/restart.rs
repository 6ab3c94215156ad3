//! `restart_syscall`: continues a wait with a timeout that a stop, or a signal without a handler,
//! interrupted. A restart of the call itself would wait for the whole timeout again.

use super::{poll, time};
use crate::errno::{Answer, EINTR, Errno, RESTART_REST};
use crate::futex::{self, Word};
use crate::sched;

/// The part of a wait that is left. Deadlines are on the monotonic clock.
#[derive(Clone, Copy)]
pub enum Rest {
    Nothing,
    Sleep {
        deadline: u64,
        /// Where to write the time left; 0 for nowhere.
        remaining: u64,
    },
    Poll {
        list: u64,
        count: u64,
        deadline: Option<u64>,
    },
    Futex {
        word: Word,
        expected: u32,
        deadline: u64,
        bits: u32,
    },
}

/// Records what the current thread continues unless a handler runs; returns the error number that says so.
pub fn later(rest: Rest) -> Errno {
    sched::current().rest.set(rest);
    RESTART_REST
}

pub fn restart_syscall() -> Answer {
    match sched::current().rest.replace(Rest::Nothing) {
        Rest::Nothing => Err(EINTR),
        Rest::Sleep {
            deadline,
            remaining,
        } => time::sleep(deadline, remaining),
        Rest::Poll {
            list,
            count,
            deadline,
        } => poll::poll_on(list, count, deadline),
        Rest::Futex {
            word,
            expected,
            deadline,
            bits,
        } => futex::sleep(word, expected, Some(deadline), bits),
    }
}
