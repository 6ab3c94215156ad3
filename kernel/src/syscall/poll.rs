//! Waiting for descriptors: `poll` and `select`.
//!
//! The wait checks all descriptors first. If none is ready, it adds a watcher to all their lists, and checks
//! again whenever the watcher is notified.

use alloc::vec::Vec;

use linux_raw_sys::general as linux;

use super::restart::{self, Rest};
use super::time;
use crate::arch::{time as clock, uaccess};
use crate::errno::{
    Answer, EBADF, EFAULT, EINTR, EINVAL, ENOMEM, Errno, RESTART, RESTART_IF_NO_HANDLER,
};
use crate::files::description::{Description, Object};
use crate::files::descriptors;
use crate::files::readiness::{Events, Poller, Watcher};
use crate::sched;
use crate::sched::wait::{self, Interruptible, Woken};
use crate::shared::Shared;
use crate::signal::send;

/// A descriptor that the call waits for.
struct Wanted {
    /// `None`: the descriptor is not open, or is to be ignored.
    description: Option<Shared<Description>>,
    events: Events,
    found: Events,
}

impl Wanted {
    fn look(&mut self) -> bool {
        if let Some(description) = &self.description {
            self.found = description.events() & (self.events | Events::ALWAYS);
        }
        !self.found.is_empty()
    }
}

fn look(list: &mut [Wanted]) -> usize {
    let mut found = 0;
    for wanted in list {
        found += usize::from(wanted.look());
    }
    found
}

/// Watches some descriptors until it is dropped.
struct Watch<'a> {
    poller: Shared<Poller>,
    descriptions: &'a [Option<Shared<Description>>],
}

impl<'a> Watch<'a> {
    fn begin(
        descriptions: &'a [Option<Shared<Description>>],
        list: &[Wanted],
    ) -> Result<Self, Errno> {
        let watch = Self {
            poller: Shared::new(Poller::new())?,
            descriptions,
        };
        for (description, wanted) in descriptions.iter().zip(list) {
            if let Some(source) = description.as_ref().and_then(|open| open.readiness()) {
                source.watch(Watcher::Poller(watch.poller.clone()), wanted.events)?;
            }
        }
        Ok(watch)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let watcher = Watcher::Poller(self.poller.clone());
        for description in self.descriptions.iter().flatten() {
            if let Some(source) = description.readiness() {
                source.unwatch(&watcher);
            }
        }
    }
}

/// Waits until a descriptor is ready; returns how many are.
///
/// # Errors
/// `ENOMEM`, or a signal came.
fn wait_for(list: &mut [Wanted], deadline: Option<u64>) -> Result<usize, Errno> {
    let found = look(list);
    if found != 0 || deadline.is_some_and(|deadline| clock::now() >= deadline) {
        return Ok(found);
    }
    let mut descriptions = Vec::new();
    descriptions
        .try_reserve_exact(list.len())
        .map_err(|_| ENOMEM)?;
    descriptions.extend(list.iter().map(|wanted| wanted.description.clone()));
    let watch = Watch::begin(&descriptions, list)?;
    loop {
        watch.poller.reset();
        let found = look(list);
        if found != 0 || deadline.is_some_and(|deadline| clock::now() >= deadline) {
            return Ok(found);
        }
        let key = watch.poller.key();
        let nothing = || Ok(!watch.poller.is_told());
        let woken = wait::sleep(key, u32::MAX, deadline, Interruptible::Yes, nothing)?;
        if woken == Some(Woken::Signal) && sched::current().is_interrupted() {
            return Err(RESTART_IF_NO_HANDLER);
        }
    }
}

/// Runs `f` with another signal mask. If a signal ends it, the handler runs before the mask is restored.
pub fn with_mask(mask: u64, size: u64, f: impl FnOnce() -> Answer) -> Answer {
    if mask == 0 {
        return f();
    }
    if size != 8 {
        return Err(EINVAL);
    }
    let mask = uaccess::read(mask)?;
    let thread = sched::current();
    {
        let mut signals = thread.signals.lock();
        signals.saved = Some(signals.blocked);
    }
    send::set_blocked(thread, mask);
    let answer = f();
    if !matches!(answer, Err(EINTR | RESTART | RESTART_IF_NO_HANDLER)) {
        let saved = thread.signals.lock().saved.take();
        if let Some(saved) = saved {
            send::set_blocked(thread, saved);
        }
    }
    answer
}

fn poll_until(list: u64, count: u64, deadline: Option<u64>) -> Answer {
    let count = u64::from(count as u32);
    let table = descriptors::current();
    if count > table.limit() {
        return Err(EINVAL);
    }
    let mut wanted = Vec::new();
    wanted
        .try_reserve_exact(count as usize)
        .map_err(|_| ENOMEM)?;
    for number in 0..count {
        let [fd, events]: [u32; 2] = uaccess::read(list.wrapping_add(8 * number))?;
        let description = if (fd as i32) < 0 {
            None
        } else {
            // A descriptor opened with `O_PATH` counts as not open.
            let open = table.get(u64::from(fd)).ok();
            open.filter(|open| !matches!(open.object, Object::Path(_)))
        };
        let invalid = description.is_none() && fd as i32 >= 0;
        wanted.push(Wanted {
            description,
            events: Events::from_bits_truncate(events & 0xffff),
            found: if invalid {
                Events::INVALID
            } else {
                Events::empty()
            },
        });
    }
    let found = wait_for(&mut wanted, deadline)?;
    for (number, wanted) in (0..).zip(&wanted) {
        // Only the upper half of the second word (`revents`) is written.
        let at = list.wrapping_add(8 * number + 6);
        uaccess::write_bytes(at, &(wanted.found.bits() as u16).to_le_bytes())?;
    }
    Ok(found as u64)
}

pub fn poll(list: u64, count: u64, milliseconds: u64) -> Answer {
    let wait = u64::try_from(milliseconds as i32).ok();
    let deadline = wait.map(|wait| clock::now().saturating_add(wait * 1_000_000));
    poll_on(list, count, deadline)
}

/// `poll` until a deadline; continues after a signal without a handler.
///
/// # Errors
/// As `poll(2)`.
pub fn poll_on(list: u64, count: u64, deadline: Option<u64>) -> Answer {
    poll_until(list, count, deadline).map_err(|error| match error {
        RESTART_IF_NO_HANDLER => restart::later(Rest::Poll {
            list,
            count,
            deadline,
        }),
        error => error,
    })
}

/// The deadline a `struct timespec` from now; none without one.
fn deadline(timeout: u64) -> Result<Option<u64>, Errno> {
    if timeout == 0 {
        return Ok(None);
    }
    let wait = time::read_timespec(timeout)?;
    Ok(Some(clock::now().saturating_add(wait)))
}

/// Writes back the time left, where Linux does.
fn write_rest(to: u64, deadline: Option<u64>, unit: u64) {
    if let Some(deadline) = deadline {
        let rest = deadline.saturating_sub(clock::now());
        // As on Linux, a timeout that cannot be written is no reason to fail.
        let _ = uaccess::write(to, &[rest / 1_000_000_000, rest % 1_000_000_000 / unit]);
    }
}

pub fn ppoll(list: u64, count: u64, timeout: u64, mask: u64, size: u64) -> Answer {
    let deadline = deadline(timeout)?;
    let answer = with_mask(mask, size, || poll_until(list, count, deadline));
    write_rest(timeout, deadline, 1);
    answer
}

/// The events that each of the three sets of `select` waits for.
const SETS: [Events; 3] = [
    Events::READABLE.union(Events::HANG_UP).union(Events::ERROR),
    Events::WRITABLE.union(Events::ERROR),
    Events::PRIORITY,
];
/// The words of a set for the largest number of descriptors.
const WORDS: usize = descriptors::HARD_LIMIT as usize / 64;

type Set = [u64; WORDS];

fn select_until(count: u64, sets: [u64; 3], deadline: Option<u64>) -> Answer {
    let count = count as i32;
    if count < 0 {
        return Err(EINVAL);
    }
    let table = descriptors::current();
    // Bits beyond the table are ignored.
    let count = (count as usize).min(table.reach());
    let words = count.div_ceil(64);
    let read = |at: u64| -> Result<Set, Errno> {
        let mut set = [0; WORDS];
        if at != 0 {
            for (number, word) in set[..words].iter_mut().enumerate() {
                *word = uaccess::read(at.wrapping_add(8 * number as u64))?;
            }
        }
        Ok(set)
    };
    let mut asked = [read(sets[0])?, read(sets[1])?, read(sets[2])?];
    let has = |set: &Set, fd: usize| set[fd / 64] & 1 << (fd % 64) != 0;
    let mut numbers = Vec::new();
    let mut wanted = Vec::new();
    for fd in 0..count {
        let mut events = Events::empty();
        for (set, kind) in asked.iter().zip(SETS) {
            if has(set, fd) {
                events |= kind;
            }
        }
        if events.is_empty() {
            continue;
        }
        let description = Some(table.get(fd as u64)?);
        if description
            .as_ref()
            .is_some_and(|open| matches!(open.object, Object::Path(_)))
        {
            return Err(EBADF);
        }
        numbers.try_reserve(1).map_err(|_| ENOMEM)?;
        wanted.try_reserve(1).map_err(|_| ENOMEM)?;
        numbers.push(fd);
        wanted.push(Wanted {
            description,
            events,
            found: Events::empty(),
        });
    }
    wait_for(&mut wanted, deadline)?;
    let mut total = 0;
    for (set, kind) in asked.iter_mut().zip(SETS) {
        let before = core::mem::replace(set, [0; WORDS]);
        for (&fd, wanted) in numbers.iter().zip(&wanted) {
            if has(&before, fd) && wanted.found.intersects(kind) {
                set[fd / 64] |= 1 << (fd % 64);
                total += 1;
            }
        }
    }
    for (at, set) in sets.into_iter().zip(&asked) {
        if at != 0 {
            for (number, word) in (0..).zip(&set[..words]) {
                uaccess::write(at.wrapping_add(8 * number), word).map_err(|_| EFAULT)?;
            }
        }
    }
    Ok(total)
}

pub fn select(count: u64, reads: u64, writes: u64, errors: u64, timeout: u64) -> Answer {
    let deadline = if timeout == 0 {
        None
    } else {
        let [seconds, micros]: [i64; 2] = uaccess::read(timeout)?;
        if seconds < 0 || micros < 0 {
            return Err(EINVAL);
        }
        let wait = (seconds as u64)
            .saturating_mul(1_000_000_000)
            .saturating_add((micros as u64).saturating_mul(1000));
        Some(clock::now().saturating_add(wait))
    };
    let answer = select_until(count, [reads, writes, errors], deadline);
    write_rest(timeout, deadline, 1000);
    answer
}

pub fn pselect6(
    count: u64,
    reads: u64,
    writes: u64,
    errors: u64,
    timeout: u64,
    mask: u64,
) -> Answer {
    let deadline = deadline(timeout)?;
    let [mask, size]: [u64; 2] = if mask == 0 {
        [0; 2]
    } else {
        uaccess::read(mask)?
    };
    let sets = [reads, writes, errors];
    let answer = with_mask(mask, size, || select_until(count, sets, deadline));
    write_rest(timeout, deadline, 1);
    answer
}

// `poll` and epoll use the same numbers for the events that they share.
const _: () =
    assert!(linux::POLLOUT == Events::OUT.bits() && linux::EPOLLHUP == Events::HANG_UP.bits());
