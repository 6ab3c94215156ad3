//! What operations tell about themselves, if somebody wants to know.
//!
//! Off, which is the rule, a fault pays one branch at its beginning, and an operation one
//! more at its end; everything else is out of line.

use faultless_trace::{Event, How, Kind, Reason, Tracer};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::fault::Outcome;
use crate::fault::retry::Retry;
use crate::space::AddressSpace;

/// Nothing is recorded.
const OFF: u64 = u64::MAX;

/// Takes note of how a fault goes; `()` takes none.
pub(crate) trait TraceSink {
    /// Whether the fault is one that the mapping need not allow ([`crate::ops`], `access`).
    const FORCES: bool = false;
    /// It has found how it ends, should nothing come between.
    fn ends(&mut self, how: How);
    /// It has put a table in place.
    fn has_table(&mut self);
    /// It goes on under the mmap lock.
    fn fell_back(&mut self, why: Retry);
}

impl TraceSink for () {
    #[inline(always)]
    fn ends(&mut self, _: How) {}
    #[inline(always)]
    fn has_table(&mut self) {}
    #[inline(always)]
    fn fell_back(&mut self, _: Retry) {}
}

/// How one fault goes.
pub(crate) struct FaultTrace {
    how: How,
    table: bool,
    reason: Reason,
}

impl TraceSink for FaultTrace {
    fn ends(&mut self, how: How) {
        self.how = how;
    }

    fn has_table(&mut self) {
        self.table = true;
    }

    fn fell_back(&mut self, why: Retry) {
        self.reason = match why {
            Retry::EntryClaimed => Reason::PteLock,
            Retry::TableChanged => Reason::PmdChanged,
            _ => Reason::VmaChanged,
        };
    }
}

/// The same of one that the mapping need not allow.
pub(crate) struct Forced(pub(crate) FaultTrace);

impl TraceSink for Forced {
    const FORCES: bool = true;

    fn ends(&mut self, how: How) {
        self.0.ends(how);
    }

    fn has_table(&mut self) {
        self.0.has_table();
    }

    fn fell_back(&mut self, why: Retry) {
        self.0.fell_back(why);
    }
}

impl FaultTrace {
    pub(crate) fn new() -> Self {
        Self {
            how: How::Unknown,
            table: false,
            reason: Reason::None,
        }
    }

    /// The fault that began at `start` has ended.
    pub(crate) fn end<M: Machine>(
        &self,
        space: &AddressSpace<M>,
        start: u64,
        address: u64,
        outcome: Outcome,
    ) {
        if start == OFF {
            return;
        }
        let how = match outcome {
            Outcome::Resolved => self.how,
            Outcome::Segv(_) => How::Segv,
            Outcome::Bus => How::Bus,
            Outcome::OutOfMemory => How::OutOfMemory,
        };
        let end = space.machine().now();
        // This CPU's, even if the fault slept and began on another one.
        let tracer = space.memory().this_cpu().tracer();
        tracer.record(Event::fault(
            start,
            end,
            address,
            how,
            self.table,
            self.reason,
        ));
    }
}

impl<M: Machine> AddressSpace<M> {
    /// When what begins now began; for [`AddressSpace::trace_end`].
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
        if self.memory.this_cpu().tracer().is_on() {
            self.machine().now()
        } else {
            OFF
        }
    }

    /// Records something that began at `start` and ends now; `error`: a number, or 0.
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
        self.memory.this_cpu().tracer().record(event.with(0, error));
    }

    /// Records that something happens now.
    #[inline]
    pub(crate) fn event(&self, kind: Kind, address: u64, value: u64) {
        let start = self.trace_start();
        self.trace_end(kind, start, address, value, 0);
    }

    /// Records an operation that began at `start`, and passes its result on.
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
