//! Clocks and sleep.

use linux_raw_sys::general as linux;

use super::restart::{self, Rest};
use crate::arch::{time as clock, uaccess};
use crate::errno::{Answer, EINVAL, Errno, RESTART_IF_NO_HANDLER};
use crate::process::{self, usage};
use crate::sched;
use crate::sched::wait::{self, Interruptible, Woken};

const SECOND: u64 = 1_000_000_000;

/// A `struct timespec` in nanoseconds.
///
/// # Errors
/// `EFAULT`; `EINVAL` if it is not a time.
pub fn read_timespec(from: u64) -> Result<u64, Errno> {
    let [seconds, nanoseconds]: [i64; 2] = uaccess::read(from)?;
    if seconds < 0 || !(0..SECOND as i64).contains(&nanoseconds) {
        return Err(EINVAL);
    }
    Ok((seconds as u64)
        .saturating_mul(SECOND)
        .saturating_add(nanoseconds as u64))
}

/// Writes a `struct timespec` or `timeval`.
///
/// # Errors
/// `EFAULT`.
pub fn write_pair(to: u64, first: u64, second: u64) -> Result<(), Errno> {
    uaccess::write(to, &[first, second])
}

fn read_clock(clock_id: u64) -> Result<u64, Errno> {
    match clock_id as u32 {
        linux::CLOCK_REALTIME | linux::CLOCK_REALTIME_COARSE | linux::CLOCK_TAI => {
            Ok(clock::real_now())
        }
        linux::CLOCK_MONOTONIC
        | linux::CLOCK_MONOTONIC_RAW
        | linux::CLOCK_MONOTONIC_COARSE
        | linux::CLOCK_BOOTTIME => Ok(clock::now()),
        linux::CLOCK_PROCESS_CPUTIME_ID => {
            usage::charge(sched::current());
            Ok(usage::of_time(process::current()))
        }
        linux::CLOCK_THREAD_CPUTIME_ID => {
            usage::charge(sched::current());
            Ok(sched::current().usage.get().ran)
        }
        // CPU-time clocks of a process or thread by number: the number's complement, the clock's
        // kind in three bits.
        id if id & 0x8000_0000 != 0 => cpu_clock(id),
        _ => Err(EINVAL),
    }
}

fn cpu_clock(clock_id: u32) -> Result<u64, Errno> {
    let number = !(clock_id as i32 >> 3) as u32;
    let of_thread = clock_id & 4 != 0;
    usage::charge(sched::current());
    if number == 0 && of_thread {
        return Ok(sched::current().usage.get().ran);
    }
    let process = match number {
        0 => sched::current().process_reference(),
        number if of_thread => process::family::find_thread(number).ok_or(EINVAL)?,
        number => process::family::find(number).ok_or(EINVAL)?,
    };
    if of_thread {
        return process
            .with_thread(number, |thread| thread.usage.get().ran)
            .ok_or(EINVAL);
    }
    Ok(usage::of_time(&process))
}

pub fn clock_gettime(clock_id: u64, to: u64) -> Answer {
    let now = read_clock(clock_id)?;
    write_pair(to, now / SECOND, now % SECOND)?;
    Ok(0)
}

pub fn clock_getres(clock_id: u64, to: u64) -> Answer {
    read_clock(clock_id)?;
    if to != 0 {
        write_pair(to, 0, 1)?;
    }
    Ok(0)
}

pub fn gettimeofday(to: u64, zone: u64) -> Answer {
    let now = clock::real_now();
    if to != 0 {
        write_pair(to, now / SECOND, now % SECOND / 1000)?;
    }
    if zone != 0 {
        uaccess::write(zone, &0u64)?;
    }
    Ok(0)
}

pub fn time(to: u64) -> Answer {
    let seconds = clock::real_now() / SECOND;
    if to != 0 {
        uaccess::write(to, &seconds)?;
    }
    Ok(seconds)
}

pub fn times(to: u64) -> Answer {
    let tick = SECOND / 100;
    if to != 0 {
        usage::charge(sched::current());
        let process = process::current();
        let children = process.children_usage.lock().ran;
        uaccess::write(to, &[usage::of_time(process) / tick, 0, children / tick, 0])?;
    }
    Ok(clock::now() / tick)
}

/// Sleeps until a time on the monotonic clock; `false`: a signal came first.
fn sleep_until(deadline: Option<u64>) -> Result<bool, Errno> {
    // No waker uses this address: the thread's own record.
    let key = core::ptr::from_ref(sched::current()) as u64;
    loop {
        if deadline.is_some_and(|deadline| clock::now() >= deadline) {
            return Ok(true);
        }
        match wait::sleep(key, u32::MAX, deadline, Interruptible::Yes, || Ok(true))? {
            Some(Woken::Signal) if sched::current().is_interrupted() => return Ok(false),
            Some(Woken::Time) => return Ok(true),
            _ => {}
        }
    }
}

/// Sleeps for a time, or until a signal.
///
/// # Errors
/// The number that says that a signal came.
pub fn sleep_for(nanoseconds: Option<u64>) -> Result<(), Errno> {
    let deadline = nanoseconds.map(|wait| clock::now().saturating_add(wait));
    if sleep_until(deadline)? {
        Ok(())
    } else {
        Err(RESTART_IF_NO_HANDLER)
    }
}

/// Sleeps for a time; only the end of the process interrupts it.
pub fn pause(nanoseconds: u64) {
    let key = core::ptr::from_ref(sched::current()) as u64;
    let deadline = clock::now().saturating_add(nanoseconds);
    let _ = wait::sleep(key, u32::MAX, Some(deadline), Interruptible::ByEnd, || {
        Ok(true)
    });
}

/// Sleeps until a deadline; writes the time left if a signal comes first.
///
/// # Errors
/// `EFAULT`, or the number that says that a signal came.
pub fn sleep(deadline: u64, remaining: u64) -> Answer {
    if sleep_until(Some(deadline))? {
        return Ok(0);
    }
    let left = deadline.saturating_sub(clock::now());
    if left == 0 {
        return Ok(0);
    }
    if remaining != 0 {
        write_pair(remaining, left / SECOND, left % SECOND)?;
    }
    Err(restart::later(Rest::Sleep {
        deadline,
        remaining,
    }))
}

pub fn nanosleep(request: u64, remaining: u64) -> Answer {
    let wait = read_timespec(request)?;
    sleep(clock::now().saturating_add(wait), remaining)
}

pub fn clock_nanosleep(clock_id: u64, flags: u64, request: u64, remaining: u64) -> Answer {
    let now = read_clock(clock_id)?;
    let wait = read_timespec(request)?;
    if flags as u32 & linux::TIMER_ABSTIME == 0 {
        return sleep(clock::now().saturating_add(wait), remaining);
    }
    // A restart of the call ends at the same time.
    sleep_for(Some(wait.saturating_sub(now))).map(|()| 0)
}
