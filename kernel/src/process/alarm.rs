//! Timers that send signals: `setitimer`, `timer_create`.
//!
//! One list for all processes, and one thread of the kernel that sleeps until the first of them is
//! due. It is made when the first timer is set.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linux_raw_sys::general as linux;

use super::family;
use crate::arch::{TrapFrame, time};
use crate::errno::{EAGAIN, EINVAL, ENOMEM, Errno};
use crate::sched::thread::Thread;
use crate::sched::wait::{self, Interruptible};
use crate::sched::{self};
use crate::signal::pending::Info;
use crate::signal::send;
use crate::sync::SpinLock;

/// The number that the kernel's own thread has, which no process gets.
const OWN_THREAD: u32 = 2;
/// `setitimer`'s real-time timer, beside the numbers of `timer_create`.
pub const INTERVAL_TIMER: i32 = -1;
/// Nanoseconds from one look at the timers to the next. What is due more often overruns.
const LEAST_PAUSE: u64 = 100_000;
/// Timers that a process can have.
const MOST: i32 = 1024;

/// Whom a timer tells, and how.
#[derive(Clone, Copy)]
pub struct Notice {
    /// 0: nobody.
    pub signal: u32,
    /// A thread of the process, or whichever takes it.
    pub thread: Option<u32>,
    pub value: u64,
}

/// A timer.
#[derive(Clone, Copy)]
struct Alarm {
    process: u32,
    id: i32,
    /// Counted on the clock that can be set.
    real: bool,
    /// When it is due, on the monotonic clock; `u64::MAX`: not set.
    deadline: u64,
    /// 0: once.
    interval: u64,
    notice: Notice,
    overruns: u64,
}

static ALARMS: SpinLock<Vec<Alarm>> = SpinLock::new(Vec::new());
/// The first deadline that the thread knows.
static SLEEPS_UNTIL: AtomicU64 = AtomicU64::new(u64::MAX);
static HAS_THREAD: AtomicBool = AtomicBool::new(false);

fn key() -> u64 {
    &raw const ALARMS as u64
}

/// What is left of a timer, and its interval; nanoseconds.
#[derive(Clone, Copy, Default)]
pub struct Setting {
    pub left: u64,
    pub interval: u64,
}

impl Alarm {
    fn setting(&self) -> Setting {
        let left = match self.deadline {
            u64::MAX => 0,
            // Set is never 0, even if it is about to be told.
            deadline => deadline.saturating_sub(time::now()).max(1),
        };
        Setting {
            left,
            interval: self.interval,
        }
    }
}

fn find(alarms: &mut [Alarm], process: u32, id: i32) -> Option<&mut Alarm> {
    alarms
        .iter_mut()
        .find(|alarm| alarm.process == process && alarm.id == id)
}

/// Makes a timer; its number.
///
/// # Errors
/// `EAGAIN`, `ENOMEM`.
pub fn create(process: u32, real: bool, notice: impl FnOnce(i32) -> Notice) -> Result<i32, Errno> {
    let mut alarms = ALARMS.lock();
    let id = (0..MOST)
        .find(|&id| find(&mut alarms, process, id).is_none())
        .ok_or(EAGAIN)?;
    add(&mut alarms, process, id, real, notice(id))?;
    Ok(id)
}

fn add(
    alarms: &mut Vec<Alarm>,
    process: u32,
    id: i32,
    real: bool,
    notice: Notice,
) -> Result<(), Errno> {
    alarms.try_reserve(1).map_err(|_| ENOMEM)?;
    alarms.push(Alarm {
        process,
        id,
        real,
        deadline: u64::MAX,
        interval: 0,
        notice,
        overruns: 0,
    });
    Ok(())
}

/// Forgets a timer.
///
/// # Errors
/// `EINVAL`: there is none.
pub fn delete(process: u32, id: i32) -> Result<(), Errno> {
    let mut alarms = ALARMS.lock();
    let at = alarms
        .iter()
        .position(|alarm| alarm.process == process && alarm.id == id)
        .ok_or(EINVAL)?;
    alarms.swap_remove(at);
    Ok(())
}

/// Forgets a process's timers: all of them, or those of `timer_create`.
pub fn forget(process: u32, all: bool) {
    // Most processes never set one.
    if HAS_THREAD.load(Ordering::Relaxed) {
        let goes = |alarm: &Alarm| alarm.process == process && (all || alarm.id >= 0);
        ALARMS.lock().retain(|alarm| !goes(alarm));
    }
}

/// How a timer is set, and whether it counts on the clock that can be set.
///
/// # Errors
/// `EINVAL`: there is none.
pub fn get(process: u32, id: i32) -> Result<(Setting, bool), Errno> {
    let mut alarms = ALARMS.lock();
    let alarm = find(&mut alarms, process, id).ok_or(EINVAL)?;
    Ok((alarm.setting(), alarm.real))
}

/// How often a timer was due more than it could tell, the last time it told.
///
/// # Errors
/// `EINVAL`: there is none.
pub fn overruns(process: u32, id: i32) -> Result<u64, Errno> {
    let mut alarms = ALARMS.lock();
    Ok(find(&mut alarms, process, id).ok_or(EINVAL)?.overruns)
}

/// Sets a timer to a time on the monotonic clock, `u64::MAX` for never; how it was set.
///
/// # Errors
/// `EINVAL`: there is none; `ENOMEM`, `EAGAIN`.
pub fn set(process: u32, id: i32, deadline: u64, interval: u64) -> Result<Setting, Errno> {
    if deadline != u64::MAX {
        begin()?;
    }
    let mut alarms = ALARMS.lock();
    if id == INTERVAL_TIMER && find(&mut alarms, process, id).is_none() {
        if deadline == u64::MAX {
            return Ok(Setting::default());
        }
        let notice = Notice {
            signal: linux::SIGALRM,
            thread: None,
            value: 0,
        };
        add(&mut alarms, process, id, false, notice)?;
    }
    let alarm = find(&mut alarms, process, id).ok_or(EINVAL)?;
    let before = alarm.setting();
    alarm.deadline = deadline;
    alarm.interval = interval;
    alarm.overruns = 0;
    drop(alarms);
    // SeqCst: the thread says until when it sleeps before it looks at the list for the last time.
    if deadline < SLEEPS_UNTIL.load(Ordering::SeqCst) {
        wait::wake_address(key(), 1, u32::MAX);
    }
    Ok(before)
}

/// Makes the thread, once.
fn begin() -> Result<(), Errno> {
    if HAS_THREAD.swap(true, Ordering::AcqRel) {
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
        // Of one moment: an interval shorter than it takes to tell would keep this CPU for ever.
        let now = time::now();
        while let Some(alarm) = take_due(now) {
            tell(&alarm);
            // A timer with a short interval is due again at once: others have to run, too.
            sched::breathe();
        }
        let first = || {
            let alarms = ALARMS.lock();
            let deadlines = alarms.iter().map(|alarm| alarm.deadline);
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

/// A timer that is due, as it has to tell; in the list it is set anew.
fn take_due(now: u64) -> Option<Alarm> {
    let mut alarms = ALARMS.lock();
    let alarm = alarms.iter_mut().find(|alarm| alarm.deadline <= now)?;
    if alarm.interval == 0 {
        alarm.overruns = 0;
        let due = *alarm;
        alarm.deadline = u64::MAX;
        return Some(due);
    }
    // Times that have passed meanwhile are told as one.
    alarm.overruns = (now - alarm.deadline) / alarm.interval;
    let due = *alarm;
    let step = alarm.interval.saturating_mul(alarm.overruns + 1);
    // Never, if that is beyond all time.
    alarm.deadline = alarm.deadline.saturating_add(step);
    Some(due)
}

fn tell(alarm: &Alarm) {
    let Some(process) = family::find(alarm.process) else {
        return;
    };
    let Notice {
        signal,
        thread,
        value,
    } = alarm.notice;
    if signal == 0 {
        return;
    }
    let interval_timer = alarm.id == INTERVAL_TIMER;
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
