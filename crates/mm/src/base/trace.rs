//! Events of the memory core, recorded by this CPU's tracer.
//!
//! While nothing records, an event costs one branch.
//!
//! *Writes*: this CPU's ring.

use faultless_trace::{Event, Kind, Tracer};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::memory::Memory;

/// The start time of an event that is not recorded.
pub(crate) const OFF: u64 = u64::MAX;

impl<M: Machine> Memory<M> {
    /// Returns the start time for [`Memory::trace_end`].
    #[inline(always)]
    pub(crate) fn trace_start(&self) -> u64 {
        if Tracer::any_is_on() {
            self.trace_time()
        } else {
            OFF
        }
    }

    #[cold]
    #[inline(never)]
    fn trace_time(&self) -> u64 {
        if self.this_cpu().tracer().is_on() {
            self.machine().now()
        } else {
            OFF
        }
    }

    /// Records an event that began at `start` and ends now; `error` is a number, or 0.
    #[inline(always)]
    pub(crate) fn trace_end(&self, kind: Kind, start: u64, address: u64, value: u64, error: u8) {
        if cfg!(feature = "events") && start != OFF {
            self.trace_record(kind, start, address, value, error);
        }
    }

    #[cold]
    #[inline(never)]
    fn trace_record(&self, kind: Kind, start: u64, address: u64, value: u64, error: u8) {
        let event = Event::slice(kind, start, self.machine().now(), address, value);
        self.this_cpu().tracer().record(event.with(0, error));
    }

    /// Records that an event happens now.
    #[inline]
    pub(crate) fn event(&self, kind: Kind, address: u64, value: u64) {
        let start = self.trace_start();
        self.trace_end(kind, start, address, value, 0);
    }

    /// Records the event that `make` returns for the present time, on this CPU. For what the core's events do not cover; the
    /// caller has seen [`Tracer::any_is_on`].
    #[cold]
    pub fn record(&self, make: impl FnOnce(u64) -> Event) {
        let tracer = self.this_cpu().tracer();
        if tracer.is_on() {
            tracer.record(make(self.machine().now()));
        }
    }

    /// Records an operation that began at `start`, and returns its result.
    #[inline(always)]
    pub(crate) fn trace_result<R>(
        &self,
        kind: Kind,
        start: u64,
        (address, length): (u64, u64),
        result: Result<R, Errno>,
    ) -> Result<R, Errno> {
        let error = result.as_ref().err().map_or(0, |error| error.0 as u8);
        self.trace_end(kind, start, address, length, error);
        result
    }
}
