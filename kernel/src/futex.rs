//! Futexes: user mode's way to sleep on a word.
//!
//! A futex in private memory is an address in an address space. A futex in shared memory is an offset in the
//! memory object that is mapped there, wherever each process maps it. The word is read under the bucket's
//! lock, where faulting is not allowed. If its page is not present, the lock is dropped, the page faulted in,
//! and the operation begins again.

use linux_raw_sys::general as linux;

use crate::arch::{time, uaccess};
use crate::errno::{Answer, EAGAIN, EFAULT, EINVAL, ENOSYS, ETIMEDOUT, Errno, RESTART};
use crate::memory::USER_END;
use crate::process;
use crate::sched;
use crate::sched::wait::{self, Interruptible, Woken};
use crate::syscall::restart::{self, Rest};
use crate::syscall::time::read_timespec;

/// A word that threads sleep on.
#[derive(Clone, Copy)]
pub struct Word {
    pub address: u64,
    /// Whether the program says that only this process uses it.
    pub is_private: bool,
}

impl Word {
    /// A word that other processes may sleep on, too.
    pub fn anyones(address: u64) -> Self {
        Self {
            address,
            is_private: false,
        }
    }

    /// The key for the table of sleepers.
    fn key(self) -> u64 {
        let space = process::space();
        let is_shared = || {
            let attributes = space.lookup(self.address);
            attributes.is_some_and(|attributes| attributes.flags.shared)
        };
        if !self.is_private
            && is_shared()
            && let Some((store, byte)) = space.object_at(self.address)
        {
            return shared_key(store.id(), byte);
        }
        space.key(self.address)
    }
}

/// The key of an offset in a memory object: never a kernel address or the key of a word in a space. Two
/// offsets with the same key are too unlikely ever to meet.
fn shared_key(store: u64, byte: u64) -> u64 {
    // Two rounds of a mixing function (splitmix64).
    let mix = |value: u64| {
        let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ value >> 31
    };
    1 << 63 | mix(mix(store).wrapping_add(byte >> 2)) >> 2
}

/// Compares under the lock; `None`: the page has to be faulted in first.
fn matches(address: u64, expected: u32) -> Option<bool> {
    uaccess::read_word_no_fault(address)
        .ok()
        .map(|word| word == expected)
}

fn check_address(address: u64) -> Result<(), Errno> {
    if !address.is_multiple_of(4) {
        return Err(EINVAL);
    }
    if address >= USER_END {
        Err(EFAULT)
    } else {
        Ok(())
    }
}

/// Marks that the page must be faulted in; no program can make a word's check return it.
const NOT_THERE: Errno = Errno(-1);

/// Sleeps on a word, if it is what is expected.
///
/// # Errors
/// `EAGAIN` if it is not, `ETIMEDOUT`, `EFAULT`, or a signal came.
pub fn sleep(word: Word, expected: u32, deadline: Option<u64>, bits: u32) -> Answer {
    let address = word.address;
    loop {
        let result = wait::sleep(word.key(), bits, deadline, Interruptible::Yes, || {
            matches(address, expected).ok_or(NOT_THERE)
        });
        return match result {
            Err(NOT_THERE) => {
                uaccess::read::<u32>(address)?;
                continue;
            }
            Err(error) => Err(error),
            Ok(None) => Err(EAGAIN),
            Ok(Some(Woken::Waker)) => Ok(0),
            Ok(Some(Woken::Time)) => Err(ETIMEDOUT),
            // A sender of a signal wakes the thread, perhaps after it has taken the signal and sleeps again.
            // Then no signal is delivered, and the number for a restart would reach the program.
            Ok(Some(Woken::Signal)) if !sched::current().is_interrupted() => continue,
            Ok(Some(Woken::Signal)) => Err(match deadline {
                None => RESTART,
                Some(deadline) => restart::later(Rest::Futex {
                    word,
                    expected,
                    deadline,
                    bits,
                }),
            }),
        };
    }
}

/// Wakes threads; returns how many.
pub fn wake(word: Word, count: u32, bits: u32) -> u32 {
    wait::wake_address(word.key(), count, bits)
}

fn requeue(word: Word, to: u64, wake: u32, most: u32, expected: Option<u32>) -> Answer {
    check_address(to)?;
    let from = word.address;
    let to = Word {
        address: to,
        ..word
    };
    if wake as i32 | most as i32 != 0 && ((wake as i32) < 0 || (most as i32) < 0) {
        return Err(EINVAL);
    }
    loop {
        let result = wait::requeue(word.key(), to.key(), wake, most, || match expected {
            None => Ok(()),
            Some(expected) => match matches(from, expected) {
                None => Err(NOT_THERE),
                Some(true) => Ok(()),
                Some(false) => Err(EAGAIN),
            },
        });
        return match result {
            Err(NOT_THERE) => {
                uaccess::read::<u32>(from)?;
                continue;
            }
            Err(error) => Err(error),
            // Both commands count the threads woken and those moved.
            Ok((woken, moved)) => Ok(u64::from(woken + moved)),
        };
    }
}

/// When a wait ends, on the monotonic clock.
fn deadline(timeout: u64, absolute: bool, real: bool) -> Result<Option<u64>, Errno> {
    if timeout == 0 {
        return Ok(None);
    }
    let time = read_timespec(timeout)?;
    let offset = if real {
        time::real_now() - time::now()
    } else {
        0
    };
    Ok(Some(match absolute {
        true => time.saturating_sub(offset),
        false => time::now().saturating_add(time),
    }))
}

/// `futex(2)`.
///
/// # Errors
/// As documented there; `ENOSYS` for priority inheritance.
pub fn futex(
    address: u64,
    operation: u64,
    value: u64,
    timeout: u64,
    second: u64,
    third: u64,
) -> Answer {
    let operation = operation as u32;
    let real = operation & linux::FUTEX_CLOCK_REALTIME != 0;
    let command = operation & !(linux::FUTEX_PRIVATE_FLAG | linux::FUTEX_CLOCK_REALTIME);
    let value = value as u32;
    check_address(address)?;
    let word = Word {
        address,
        is_private: operation & linux::FUTEX_PRIVATE_FLAG != 0,
    };
    match command {
        linux::FUTEX_WAIT => sleep(word, value, deadline(timeout, false, false)?, u32::MAX),
        linux::FUTEX_WAIT_BITSET => {
            if third as u32 == 0 {
                return Err(EINVAL);
            }
            sleep(word, value, deadline(timeout, true, real)?, third as u32)
        }
        linux::FUTEX_WAKE => Ok(u64::from(wake(word, value.max(1), u32::MAX))),
        linux::FUTEX_WAKE_BITSET => {
            if third as u32 == 0 {
                return Err(EINVAL);
            }
            Ok(u64::from(wake(word, value.max(1), third as u32)))
        }
        linux::FUTEX_REQUEUE => requeue(word, second, value, timeout as u32, None),
        linux::FUTEX_CMP_REQUEUE => {
            requeue(word, second, value, timeout as u32, Some(third as u32))
        }
        _ => Err(ENOSYS),
    }
}
