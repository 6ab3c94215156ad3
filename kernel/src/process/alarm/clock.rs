//! The clocks of timers.

use super::super::{family, usage};
use crate::arch::{percpu, time};

/// The clock of a timer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    Monotonic,
    /// The clock that can be set. Its timers are kept on the monotonic clock.
    Real,
    /// CPU time of the process, or of one of its threads.
    Process,
    Thread(u32),
}

impl Clock {
    /// The clock's time for a process, and how many CPUs can advance it at once. `None`: the process or
    /// thread is gone.
    pub(super) fn look(self, process: u32) -> Option<(u64, u64)> {
        match self {
            Self::Monotonic | Self::Real => Some((time::now(), 1)),
            Self::Process => {
                let process = family::find(process)?;
                let threads = process.thread_count() as u64;
                let speed = threads.clamp(1, u64::from(percpu::count()));
                Some((usage::of_time(&process), speed))
            }
            Self::Thread(id) => {
                let process = family::find(process)?;
                Some((process.with_thread(id, usage::time_of)?, 1))
            }
        }
    }

    /// The clock's time for a process.
    pub fn now(self, process: u32) -> u64 {
        self.look(process).map_or(0, |(now, _)| now)
    }

    pub(super) fn is_of_cpu_time(self) -> bool {
        matches!(self, Self::Process | Self::Thread(_))
    }
}
