//! What a fault gets ready before it claims anything: a frame.
//!
//! Zeroed, for a fresh page or a table, or with any content, for a copy. It is
//! kept from one try to the next, used for whatever is needed then, and given
//! back if nobody needed it. A fault that finds no memory leaves its section,
//! releases what reclamation still holds back, and tries once more.

use faultless_frames::FrameSource;
use faultless_paging::Frame;
use faultless_sync::{Mutant, mutant};
use faultless_trace::Counter;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::fault::Outcome;
use crate::object::{MemoryObject, WaitKind};
use crate::table::retry::{Blocker, Retry};
use crate::tree::mapping::ObjectRef;
use crate::tune::MEMORY_SEARCHES;

/// A frame that a fault has in hand.
pub(crate) struct FaultState<M: Machine, N> {
    memory: &'static Memory<M>,
    frame: Option<Frame>,
    is_zeroed: bool,
    searches: u32,
    /// A page that has to be read in: its store, and its index.
    missing: Option<(MemoryObject<M>, u64)>,
    /// Whether the fault had to wait for I/O.
    pub(crate) has_waited: bool,
    /// What the fault tells about itself.
    pub(crate) trail: N,
}

impl<M: Machine, N> FaultState<M, N> {
    #[inline]
    pub(crate) fn new(memory: &'static Memory<M>, trail: N) -> Self {
        Self {
            trail,
            memory,
            frame: None,
            is_zeroed: true,
            searches: 0,
            missing: None,
            has_waited: false,
        }
    }

    /// A zeroed frame; still in hand until [`FaultState::page_used`].
    #[inline]
    pub(crate) fn page(&mut self) -> Result<Frame, Retry> {
        if let Some(frame) = self.frame {
            if !self.is_zeroed && !mutant(Mutant::NotZeroedAgain) {
                self.zero(frame);
            }
            return Ok(frame);
        }
        let frame = self
            .memory
            .allocate_frame()
            .map_err(|_| Retry::Wait(Blocker::Memory))?;
        self.frame = Some(frame);
        Ok(frame)
    }

    #[cold]
    fn zero(&mut self, frame: Frame) {
        self.memory.machine().zero(frame);
        self.is_zeroed = true;
    }

    /// A frame to copy a page to; still in hand likewise.
    pub(crate) fn page_to_fill(&mut self) -> Result<Frame, Retry> {
        let frame = match self.frame {
            Some(frame) => frame,
            None => self
                .memory
                .allocate_frame_to_fill()
                .map_err(|_| Retry::Wait(Blocker::Memory))?,
        };
        self.frame = Some(frame);
        self.is_zeroed = false;
        Ok(frame)
    }

    /// The same as [`FaultState::page`], as a table.
    pub(crate) fn table(&mut self) -> Result<Frame, Retry> {
        let frame = self.page()?;
        self.memory.make_table(frame);
        Ok(frame)
    }

    /// The frame now belongs to an entry.
    #[inline]
    pub(crate) fn page_used(&mut self) {
        self.frame = None;
        self.is_zeroed = true;
    }

    /// The frame is still in hand, but others may have found it in a store meanwhile,
    /// and written it.
    #[cold]
    pub(crate) fn page_shown(&mut self) {
        self.is_zeroed = false;
    }

    /// The try needs a page of a store that has to be read in.
    #[cold]
    pub(crate) fn needs_page(&mut self, backed: &ObjectRef, index: u64) -> Retry {
        self.missing = Some((MemoryObject::of(self.memory, backed.pointer()), index));
        Retry::Wait(Blocker::Page)
    }

    /// Reads in the page that the last try needed, or waits for who does. How the fault
    /// ends, if it cannot be.
    #[cold]
    pub(crate) fn wait_for_page(&mut self) -> Option<Outcome> {
        let (store, index) = self.missing.take()?;
        match store.fill(index) {
            Ok(waited) => {
                self.has_waited |= waited == WaitKind::ForIo;
                None
            }
            Err(Errno::ENOMEM) if self.find_memory() => None,
            Err(Errno::ENOMEM) => Some(Outcome::OutOfMemory),
            Err(_) => Some(Outcome::Bus),
        }
    }

    /// The fault is resolved: a major one, if it waited for I/O.
    #[inline]
    pub(crate) fn count_wait(&self) {
        if self.has_waited {
            self.memory.count(Counter::MajorFaults);
        }
    }

    /// Looks for memory harder. Whether it is worth another try: releasing what
    /// reclamation holds back can take other CPUs' leaving their sections.
    /// Outside any section, so that this CPU holds nothing back.
    #[cold]
    pub(crate) fn find_memory(&mut self) -> bool {
        self.searches += 1;
        self.memory.expedite();
        self.searches <= MEMORY_SEARCHES
    }
}

impl<M: Machine, N> Drop for FaultState<M, N> {
    #[inline]
    fn drop(&mut self) {
        if let Some(frame) = self.frame {
            self.memory
                .machine()
                .frames()
                .free(self.memory.machine().cpu(), frame);
        }
    }
}
