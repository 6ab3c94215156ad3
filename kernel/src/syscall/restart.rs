//! `restart_syscall`: the rest of a wait with a timeout that a stop, or a signal without handler, cut
//! short. Beginning the call anew would wait for its whole time again.

use super::{poll, time};
use crate::errno::{Answer, EINTR, Errno, RESTART_REST};
use crate::futex::{self, Word};
use crate::sched;

/// What is left to do. Deadlines are on the monotonic clock.
#[derive(Clone, Copy)]
pub enum Rest {
    Nothing,
    Sleep {
        deadline: u64,
        /// Where the time left goes; 0 for nowhere.
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

/// The current thread goes on with this unless a handler runs; the number that says so.
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
