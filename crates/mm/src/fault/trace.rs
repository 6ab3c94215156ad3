//! What operations tell about themselves, if somebody wants to know.
//!
//! Off, which is the rule, a fault pays one branch at its beginning, and an operation one
//! more at its end; everything else is out of line.

use faultless_trace::{Event, How, Reason};

use crate::base::machine::Machine;
use crate::base::trace::OFF;
use crate::fault::Outcome;
use crate::space::AddressSpace;
use crate::table::retry::{Blocker, Retry};

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
            Retry::TableChanged | Retry::Wait(Blocker::Fork) => Reason::PmdChanged,
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
