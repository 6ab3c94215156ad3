//! Timers that send signals: `setitimer`, `timer_create`, and the limit on CPU time.
//!
//! A CPU-time timer is looked at when it could be due at the earliest, and again until it is due. It is due
//! at the earliest if as many CPUs as there are threads run these all the time.
//!
//! All processes' timers are in one list. One kernel thread sleeps until the first of them is due. It is
//! started when the first timer is set.

mod clock;
pub mod limit;
mod thread;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linux_raw_sys::general as linux;

use crate::arch::time;
use crate::errno::{EAGAIN, EINVAL, ENOMEM, Errno};
use crate::sched::wait;
use crate::sync::SpinLock;
pub use clock::Clock;

/// The timers of `setitimer`, beside the numbers of `timer_create`.
pub const INTERVAL_TIMER: i32 = -1;
pub const VIRTUAL_TIMER: i32 = -2;
pub const PROFILING_TIMER: i32 = -3;
/// The timer of `RLIMIT_CPU`.
const CPU_LIMIT: i32 = -4;
/// Nanoseconds from one look at a timer of CPU time to the next.
const LEAST_CPU_PAUSE: u64 = 1_000_000;
/// The most timers that a process can have.
const MOST: i32 = 1024;

/// The signal of a timer, and its target.
#[derive(Clone, Copy)]
pub struct Notice {
    /// 0: none.
    pub signal: u32,
    /// A thread of the process, or any that takes the signal.
    pub thread: Option<u32>,
    pub value: u64,
}

const NO_NOTICE: Notice = Notice {
    signal: 0,
    thread: None,
    value: 0,
};

/// A timer.
#[derive(Clone, Copy)]
struct Alarm {
    process: u32,
    id: i32,
    clock: Clock,
    /// When it is due, on its clock; `u64::MAX`: not set.
    deadline: u64,
    /// When to look at it, on the monotonic clock.
    look: u64,
    /// 0: once.
    interval: u64,
    notice: Notice,
    overruns: u64,
}

static ALARMS: SpinLock<Vec<Alarm>> = SpinLock::new(Vec::new());
/// Until when the thread sleeps; 0 while it is awake.
static SLEEPS_UNTIL: AtomicU64 = AtomicU64::new(u64::MAX);
static HAS_THREAD: AtomicBool = AtomicBool::new(false);

fn key() -> u64 {
    &raw const ALARMS as u64
}

/// The time left of a timer, and its interval; nanoseconds.
#[derive(Clone, Copy, Default)]
pub struct Setting {
    pub left: u64,
    pub interval: u64,
}

impl Alarm {
    fn setting(&self) -> Setting {
        let left = match self.deadline {
            u64::MAX => 0,
            // A set timer never has 0 left, even if its signal is about to be sent.
            deadline => deadline.saturating_sub(self.clock.now(self.process)).max(1),
        };
        Setting {
            left,
            interval: self.interval,
        }
    }
}

impl Alarm {
    /// Computes when to look at it next; `now` is the time on its clock.
    fn plan(&mut self, now: u64, speed: u64) {
        self.look = match self.deadline {
            deadline if deadline == u64::MAX || !self.clock.is_of_cpu_time() => deadline,
            deadline => {
                let wait = (deadline.saturating_sub(now) / speed).max(LEAST_CPU_PAUSE);
                time::now().saturating_add(wait)
            }
        };
    }
}

fn find(alarms: &mut [Alarm], process: u32, id: i32) -> Option<&mut Alarm> {
    alarms
        .iter_mut()
        .find(|alarm| alarm.process == process && alarm.id == id)
}

/// Makes a timer. Returns its number.
///
/// # Errors
/// `EAGAIN`, `ENOMEM`.
pub fn create(
    process: u32,
    clock: Clock,
    notice: impl FnOnce(i32) -> Notice,
) -> Result<i32, Errno> {
    let mut alarms = ALARMS.lock();
    let id = (0..MOST)
        .find(|&id| find(&mut alarms, process, id).is_none())
        .ok_or(EAGAIN)?;
    add(&mut alarms, process, id, clock, notice(id))?;
    Ok(id)
}

fn add(
    alarms: &mut Vec<Alarm>,
    process: u32,
    id: i32,
    clock: Clock,
    notice: Notice,
) -> Result<(), Errno> {
    alarms.try_reserve(1).map_err(|_| ENOMEM)?;
    alarms.push(Alarm {
        process,
        id,
        clock,
        deadline: u64::MAX,
        look: u64::MAX,
        interval: 0,
        notice,
        overruns: 0,
    });
    Ok(())
}

/// Deletes a timer.
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

/// Deletes a process's timers: all of them, because the process ends, or those of `timer_create`.
pub fn forget(process: u32, all: bool) {
    // Most processes never set one. SeqCst: another process that sets a limit of this one (`limit::prepare_for`)
    // sets the flag, and then reads, under the lock, whether this process ends. So either it sees that, or its
    // timer is deleted here.
    if HAS_THREAD.load(Ordering::SeqCst) {
        let goes = |alarm: &Alarm| alarm.process == process && (all || alarm.id >= 0);
        ALARMS.lock().retain(|alarm| !goes(alarm));
    }
}

/// The number of timers of all processes.
pub fn count() -> usize {
    ALARMS.lock().len()
}

/// The setting of a timer, and its clock.
///
/// # Errors
/// `EINVAL`: there is none.
pub fn get(process: u32, id: i32) -> Result<(Setting, Clock), Errno> {
    let alarm = copy(process, id).ok_or(EINVAL)?;
    Ok((alarm.setting(), alarm.clock))
}

/// A copy of a timer. Clocks are read without the list's lock.
fn copy(process: u32, id: i32) -> Option<Alarm> {
    find(&mut ALARMS.lock(), process, id).copied()
}

/// The overruns of a timer when it was last signalled.
///
/// # Errors
/// `EINVAL`: there is none.
pub fn overruns(process: u32, id: i32) -> Result<u64, Errno> {
    let mut alarms = ALARMS.lock();
    Ok(find(&mut alarms, process, id).ok_or(EINVAL)?.overruns)
}

/// Sets a timer to a time on its clock, `u64::MAX` for never. Returns the old setting. The timers of
/// `setitimer` are made when they are first set.
///
/// # Errors
/// `EINVAL`: there is none; `ENOMEM`, `EAGAIN`.
pub fn set(process: u32, id: i32, deadline: u64, interval: u64) -> Result<Setting, Errno> {
    if deadline != u64::MAX {
        thread::begin()?;
    }
    if (PROFILING_TIMER..0).contains(&id) && copy(process, id).is_none() {
        if deadline == u64::MAX {
            return Ok(Setting::default());
        }
        let (clock, signal) = of_intervals(id);
        let notice = Notice {
            signal,
            thread: None,
            value: 0,
        };
        let mut alarms = ALARMS.lock();
        // Another thread may have added it meanwhile.
        if find(&mut alarms, process, id).is_none() {
            add(&mut alarms, process, id, clock, notice)?;
        }
    }
    let old = copy(process, id).ok_or(EINVAL)?;
    let before = old.setting();
    let (now, speed) = old.clock.look(process).unwrap_or((0, 1));
    let mut alarms = ALARMS.lock();
    let alarm = find(&mut alarms, process, id).ok_or(EINVAL)?;
    alarm.deadline = deadline;
    alarm.interval = interval;
    alarm.overruns = 0;
    alarm.plan(now, speed);
    let look = alarm.look;
    drop(alarms);
    // SeqCst: the thread stores until when it sleeps before its last look at the list.
    if look < SLEEPS_UNTIL.load(Ordering::SeqCst) {
        wait::wake_address(key(), 1, u32::MAX);
    }
    Ok(before)
}

/// The clock of a timer of `setitimer`, and the signal that it sends.
pub fn of_intervals(id: i32) -> (Clock, u32) {
    match id {
        VIRTUAL_TIMER => (Clock::Process, linux::SIGVTALRM),
        PROFILING_TIMER => (Clock::Process, linux::SIGPROF),
        _ => (Clock::Monotonic, linux::SIGALRM),
    }
}
