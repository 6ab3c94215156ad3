//! The kernel thread that sends the signals of due timers.

use core::sync::atomic::Ordering;

use linux_raw_sys::general as linux;

use super::super::family;
use super::{ALARMS, Alarm, CPU_LIMIT, HAS_THREAD, Notice, SLEEPS_UNTIL, find, key, limit};
use crate::arch::{TrapFrame, time};
use crate::errno::Errno;
use crate::sched;
use crate::sched::thread::Thread;
use crate::sched::wait::{self, Interruptible};
use crate::signal::pending::Info;
use crate::signal::send;

/// The number of this kernel thread, which no process gets.
const OWN_THREAD: u32 = 2;
/// Nanoseconds from one look at the timers to the next. A timer that is due more often overruns.
const LEAST_PAUSE: u64 = 100_000;

/// Starts the thread, once.
pub fn begin() -> Result<(), Errno> {
    if HAS_THREAD.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    let thread = Thread::new(OWN_THREAD, false, run, &TrapFrame::default());
    match thread {
        Ok(thread) => {
            sched::enqueue(thread);
            Ok(())
        }
        Err(error) => {
            HAS_THREAD.store(false, Ordering::Release);
            Err(error)
        }
    }
}

fn run(_: &'static Thread) {
    loop {
        // All looks are of one moment: an interval shorter than its notification would keep this CPU for
        // ever.
        let now = time::now();
        while let Some(alarm) = next(now) {
            if let Some(alarm) = take_due(&alarm, now) {
                tell(&alarm);
            }
            // A timer with a short interval is due again immediately: other threads have to run, too.
            sched::breathe();
        }
        let first = || {
            let alarms = ALARMS.lock();
            let deadlines = alarms.iter().map(|alarm| alarm.look);
            deadlines.min().unwrap_or(u64::MAX)
        };
        let soonest = first();
        let until = match soonest {
            u64::MAX => u64::MAX,
            soonest => soonest.max(now.saturating_add(LEAST_PAUSE)),
        };
        SLEEPS_UNTIL.store(until, Ordering::SeqCst);
        let deadline = (until != u64::MAX).then_some(until);
        let check = || Ok(first() == soonest);
        let _ = wait::sleep(key(), u32::MAX, deadline, Interruptible::No, check);
        SLEEPS_UNTIL.store(0, Ordering::SeqCst);
    }
}

/// Returns a timer to look at.
fn next(now: u64) -> Option<Alarm> {
    let alarms = ALARMS.lock();
    alarms.iter().find(|alarm| alarm.look <= now).copied()
}

/// Returns the timer as it is to be signalled, if it is due, and sets it anew in the list. `moment` is on the
/// monotonic clock: a timer that is due later waits for another round.
fn take_due(alarm: &Alarm, moment: u64) -> Option<Alarm> {
    let looked = alarm.clock.look(alarm.process);
    let mut alarms = ALARMS.lock();
    let alarm = find(&mut alarms, alarm.process, alarm.id)?;
    let Some((now, speed)) = looked else {
        // Its clock has stopped for good.
        alarm.look = u64::MAX;
        return None;
    };
    let now = if alarm.clock.is_of_cpu_time() {
        now
    } else {
        moment
    };
    if now < alarm.deadline {
        alarm.plan(now, speed);
        return None;
    }
    let due = alarm.take(now);
    alarm.plan(now, speed);
    due
}

impl Alarm {
    /// Sets a due timer anew. Returns it as it is to be signalled.
    fn take(&mut self, now: u64) -> Option<Alarm> {
        let alarm = self;
        if alarm.interval == 0 {
            alarm.overruns = 0;
            let due = *alarm;
            alarm.deadline = u64::MAX;
            return Some(due);
        }
        // Expirations that have passed meanwhile are signalled as one.
        alarm.overruns = (now - alarm.deadline) / alarm.interval;
        let due = *alarm;
        let step = alarm.interval.saturating_mul(alarm.overruns + 1);
        // On overflow, never.
        alarm.deadline = alarm.deadline.saturating_add(step);
        Some(due)
    }
}

fn tell(alarm: &Alarm) {
    let Some(process) = family::find(alarm.process) else {
        return;
    };
    if alarm.id == CPU_LIMIT {
        return limit::is_due(&process);
    }
    let Notice {
        signal,
        thread,
        value,
    } = alarm.notice;
    if signal == 0 {
        return;
    }
    let interval_timer = alarm.id < 0;
    let info = Info {
        signal,
        code: if interval_timer {
            linux::SI_KERNEL as i32
        } else {
            linux::SI_TIMER
        },
        // `si_timerid` and `si_overrun`.
        fields: if interval_timer {
            0
        } else {
            u64::from(alarm.id as u32) | alarm.overruns.min(i32::MAX as u64) << 32
        },
        value,
    };
    match thread {
        // The thread may have ended.
        Some(thread) => drop(send::to_thread(&process, thread, info)),
        None => send::info_to_process(&process, info),
    }
}
