//! System calls on timers that send signals.

use linux_raw_sys::general as linux;

use super::time::{read_timespec, write_pair};
use crate::arch::{time, uaccess};
use crate::errno::{Answer, EINVAL, Errno};
use crate::process::alarm::{
    self, Clock, INTERVAL_TIMER, Notice, PROFILING_TIMER, Setting, VIRTUAL_TIMER,
};
use crate::process::current;
use crate::sched;
use crate::signal::COUNT;

const SECOND: u64 = 1_000_000_000;

/// A `struct timeval` in nanoseconds.
fn read_timeval(from: u64) -> Result<u64, Errno> {
    let [seconds, microseconds]: [i64; 2] = uaccess::read(from)?;
    if seconds < 0 || !(0..1_000_000).contains(&microseconds) {
        return Err(EINVAL);
    }
    let seconds = (seconds as u64).saturating_mul(SECOND);
    Ok(seconds.saturating_add(microseconds as u64 * 1000))
}

/// The number of one of the three interval timers of every process.
fn interval_timer(which: u64) -> Result<i32, Errno> {
    match which as u32 {
        linux::ITIMER_REAL => Ok(INTERVAL_TIMER),
        linux::ITIMER_VIRTUAL => Ok(VIRTUAL_TIMER),
        linux::ITIMER_PROF => Ok(PROFILING_TIMER),
        _ => Err(EINVAL),
    }
}

fn deadline_in(clock: Clock, nanoseconds: u64) -> u64 {
    match nanoseconds {
        0 => u64::MAX,
        wait => clock
            .now(current().id)
            .saturating_add(wait)
            .min(u64::MAX - 1),
    }
}

fn write_interval(to: u64, setting: Setting) -> Result<(), Errno> {
    let pair = |time: u64| [time / SECOND, time % SECOND / 1000];
    let ([a, b], [c, d]) = (pair(setting.interval), pair(setting.left));
    uaccess::write(to, &[a, b, c, d])
}

pub fn setitimer(which: u64, new: u64, old: u64) -> Answer {
    let id = interval_timer(which)?;
    let (interval, left) = match new {
        0 => (0, 0),
        new => (read_timeval(new)?, read_timeval(new.wrapping_add(16))?),
    };
    let process = current().id;
    let deadline = deadline_in(alarm::of_intervals(id).0, left);
    let before = alarm::set(process, id, deadline, interval)?;
    if old != 0 {
        write_interval(old, before)?;
    }
    Ok(0)
}

pub fn getitimer(which: u64, to: u64) -> Answer {
    let id = interval_timer(which)?;
    let setting = alarm::get(current().id, id).map_or(Setting::default(), |found| found.0);
    write_interval(to, setting)?;
    Ok(0)
}

pub fn alarm(seconds: u64) -> Answer {
    let left = u64::from(seconds as u32) * SECOND;
    let deadline = deadline_in(Clock::Monotonic, left);
    let before = alarm::set(current().id, INTERVAL_TIMER, deadline, 0)?;
    // Rounded, but never down to "none".
    let seconds = (before.left + SECOND / 2) / SECOND;
    Ok(if before.left != 0 { seconds.max(1) } else { 0 })
}

pub fn timer_create(clock_id: u64, event: u64, to: u64) -> Answer {
    let clock = match clock_id as u32 {
        linux::CLOCK_REALTIME => Clock::Real,
        linux::CLOCK_MONOTONIC | linux::CLOCK_BOOTTIME => Clock::Monotonic,
        linux::CLOCK_PROCESS_CPUTIME_ID => Clock::Process,
        linux::CLOCK_THREAD_CPUTIME_ID => Clock::Thread(sched::current().id()),
        _ => return Err(EINVAL),
    };
    let wanted = match event {
        0 => None,
        event => {
            let value: u64 = uaccess::read(event)?;
            let [signal, notify, thread]: [u32; 3] = uaccess::read(event.wrapping_add(8))?;
            Some(notice(value, signal, notify, thread)?)
        }
    };
    let default = |id: i32| Notice {
        signal: linux::SIGALRM,
        thread: None,
        value: id as u64,
    };
    let id = alarm::create(current().id, clock, |id| wanted.unwrap_or(default(id)))?;
    if let Err(error) = uaccess::write(to, &id) {
        let _ = alarm::delete(current().id, id);
        return Err(error);
    }
    Ok(0)
}

fn notice(value: u64, signal: u32, notify: u32, thread: u32) -> Result<Notice, Errno> {
    let whose = match notify {
        linux::SIGEV_NONE => {
            return Ok(Notice {
                signal: 0,
                thread: None,
                value,
            });
        }
        linux::SIGEV_SIGNAL => None,
        notify if notify == linux::SIGEV_THREAD_ID => {
            current().with_thread(thread, |_| ()).ok_or(EINVAL)?;
            Some(thread)
        }
        _ => return Err(EINVAL),
    };
    if signal == 0 || signal > COUNT {
        return Err(EINVAL);
    }
    Ok(Notice {
        signal,
        thread: whose,
        value,
    })
}

fn write_setting(to: u64, setting: Setting) -> Result<(), Errno> {
    write_pair(to, setting.interval / SECOND, setting.interval % SECOND)?;
    let left = setting.left;
    write_pair(to.wrapping_add(16), left / SECOND, left % SECOND)
}

/// The number of a timer of `timer_create`. Others of the process are negative, and its own affair.
fn number(id: u64) -> Result<i32, Errno> {
    let id = id as i32;
    if id < 0 { Err(EINVAL) } else { Ok(id) }
}

pub fn timer_settime(id: u64, flags: u64, new: u64, old: u64) -> Answer {
    let (interval, wait) = (read_timespec(new)?, read_timespec(new.wrapping_add(16))?);
    let process = current().id;
    let (_, clock) = alarm::get(process, number(id)?)?;
    let deadline = if wait == 0 {
        u64::MAX
    } else if flags as u32 & linux::TIMER_ABSTIME == 0 {
        deadline_in(clock, wait)
    } else if clock == Clock::Real {
        wait.saturating_sub(time::real_now() - time::now())
    } else {
        wait
    };
    let before = alarm::set(process, number(id)?, deadline, interval)?;
    if old != 0 {
        write_setting(old, before)?;
    }
    Ok(0)
}

pub fn timer_gettime(id: u64, to: u64) -> Answer {
    let (setting, _) = alarm::get(current().id, number(id)?)?;
    write_setting(to, setting)?;
    Ok(0)
}

pub fn timer_getoverrun(id: u64) -> Answer {
    let count = alarm::overruns(current().id, number(id)?)?;
    Ok(count.min(i32::MAX as u64))
}

pub fn timer_delete(id: u64) -> Answer {
    alarm::delete(current().id, number(id)?)?;
    Ok(0)
}
