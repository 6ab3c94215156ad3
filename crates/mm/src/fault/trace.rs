//! Tracing of faults: how each one was resolved.
//!
//! While no tracer is on, a fault pays one branch at its start, and any other operation one more at its end.
//! Everything else is out of line.

use faultless_trace::{Event, How, Reason};

use crate::base::machine::Machine;
use crate::base::trace::OFF;
use crate::fault::Outcome;
use crate::space::AddressSpace;
use crate::table::retry::{Blocker, Retry};

/// Records the progress of a fault; `()` records nothing.
pub(crate) trait TraceSink {
    /// Whether the fault is a forced one, which the mapping need not allow ([`crate::ops`], `access`).
    const FORCES: bool = false;
    /// Whether the fault asks for huge pages where a table is. The shortest path does not.
    const SEEKS_HUGE: bool = true;
    /// Records how the fault ends, unless it is withdrawn later.
    fn ends(&mut self, how: How);
    /// Records that the fault has installed a table.
    fn has_table(&mut self);
    /// Records that the fault goes on with its page held against writers.
    fn fell_back(&mut self, why: Retry);
}

impl TraceSink for () {
    const SEEKS_HUGE: bool = false;
    #[inline(always)]
    fn ends(&mut self, _: How) {}
    #[inline(always)]
    fn has_table(&mut self) {}
    #[inline(always)]
    fn fell_back(&mut self, _: Retry) {}
}

/// Records nothing, for a fault that takes a longer path ([`Detours`](faultless_trace::Detours)).
pub(crate) struct Untraced;

impl TraceSink for Untraced {
    fn ends(&mut self, _: How) {}
    fn has_table(&mut self) {}
    fn fell_back(&mut self, _: Retry) {}
}

/// The trace of one fault.
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
            Retry::TableChanged | Retry::Wait(Blocker::Fork) => Reason::PmdChanged,
            _ => Reason::VmaChanged,
        };
    }
}

/// The trace of a forced fault, which the mapping need not allow.
pub(crate) struct Forced(pub(crate) FaultTrace);

impl TraceSink for Forced {
    const FORCES: bool = true;
    const SEEKS_HUGE: bool = false;

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

    /// Records the fault that began at `start` and has ended now.
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
            Outcome::Bus | Outcome::Poisoned => How::Bus,
            Outcome::Interrupted => How::Unknown,
            Outcome::OutOfMemory => How::OutOfMemory,
        };
        let end = space.machine().now();
        // This CPU's tracer, even if the fault slept and began on another CPU.
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
