//! Frame lists: frames chained through their descriptors, so that a list of any length needs no memory.
//!
//! *Writes*: the descriptors' links; the frames are the caller's.

use faultless_frames::FrameSource;
use faultless_paging::Frame;

use crate::base::machine::Machine;

/// Pages handled between two polls for shootdowns. The CPUs that asked for them are waiting.
pub(crate) const POLL_INTERVAL: u64 = 32;

/// Frames taken out of entries, to be freed after the flush.
#[derive(Default)]
pub(crate) struct FrameList {
    /// The first frame plus 1; 0 for none.
    head: u64,
}

impl FrameList {
    pub(crate) fn is_empty(&self) -> bool {
        self.head == 0
    }

    pub(crate) fn push<S: FrameSource>(&mut self, source: &S, frame: Frame) {
        source.descriptor(frame).set_link(self.head);
        self.head = frame.0 + 1;
    }

    pub(crate) fn pop<S: FrameSource>(&mut self, source: &S) -> Option<Frame> {
        let frame = Frame(self.head.checked_sub(1)?);
        self.head = source.descriptor(frame).link();
        Some(frame)
    }

    /// Calls `visit` with every frame. The list stays.
    pub(crate) fn for_each<S: FrameSource>(&self, source: &S, visit: &mut impl FnMut(Frame)) {
        let mut next = self.head;
        while next != 0 {
            let frame = Frame(next - 1);
            visit(frame);
            next = source.descriptor(frame).link();
        }
    }

    pub(crate) fn free_all<M: Machine>(self, machine: &M) {
        let mut next = self.head;
        let cpu = machine.cpu();
        let mut freed = 0;
        while next != 0 {
            let frame = Frame(next - 1);
            next = machine.frames().descriptor(frame).link();
            machine.frames().free(cpu, frame);
            freed += 1;
            if freed % POLL_INTERVAL == 0 {
                machine.poll();
            }
        }
    }
}
