//! What a fault gets ready before it claims anything: a zeroed frame.
//!
//! It is kept from one try to the next, used as a page or as a table, and given
//! back if nobody needed it. A fault that finds no memory leaves its section,
//! releases what reclamation still holds back, and tries once more.

use faultless_frames::{Flags, FrameSource};
use faultless_paging::{Frame, Table};

use crate::fault::Withdrawn;
use crate::machine::Machine;
use crate::memory::Memory;

/// A frame that a fault has in hand.
pub(crate) struct Prepared<M: Machine> {
    memory: &'static Memory<M>,
    frame: Option<Frame>,
    expedited: bool,
}

impl<M: Machine> Prepared<M> {
    #[inline]
    pub(crate) fn new(memory: &'static Memory<M>) -> Self {
        Self {
            memory,
            frame: None,
            expedited: false,
        }
    }

    /// A zeroed frame; still in hand until [`Prepared::page_used`].
    #[inline]
    pub(crate) fn page(&mut self) -> Result<Frame, Withdrawn> {
        if let Some(frame) = self.frame {
            return Ok(frame);
        }
        let frame = self
            .memory
            .allocate_frame()
            .map_err(|_| Withdrawn::NoMemory)?;
        self.frame = Some(frame);
        Ok(frame)
    }

    /// The same, as a table.
    pub(crate) fn table(&mut self) -> Result<Frame, Withdrawn> {
        let frame = self.page()?;
        self.memory
            .machine()
            .frames()
            .descriptor(frame)
            .set_flags(Flags::TABLE);
        // SAFETY: zeroed and this fault's alone.
        unsafe { Table::prepare(self.memory.machine(), frame) };
        Ok(frame)
    }

    /// The frame now belongs to an entry.
    #[inline]
    pub(crate) fn page_used(&mut self) {
        self.frame = None;
    }

    /// Looks for memory harder, once. Whether it is worth another try. Outside
    /// any section, so that this CPU holds nothing back.
    #[cold]
    pub(crate) fn find_memory(&mut self) -> bool {
        if core::mem::replace(&mut self.expedited, true) {
            return false;
        }
        self.memory.expedite();
        true
    }
}

impl<M: Machine> Drop for Prepared<M> {
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
