//! Makes a free block of frames for a huge page, by compaction, where none is free.
//!
//! A hand goes over the machine's aligned blocks. A block in which only pages that can be moved are, and no more than half
//! of the frames are used, is emptied ([`crate::reclaim::compact`]). Only the thread that makes huge pages in the background
//! does this: no fault waits for it.
//!
//! *Writes*: the hand; what compaction writes.

use faultless_frames::{Flags, FrameSource, NoMemory};
use faultless_paging::{ENTRIES, Frame};
use faultless_sync::atomic::Ordering;
use faultless_sync::cond_resched;

use crate::base::machine::Machine;
use crate::base::memory::Memory;

/// Blocks that one call empties at most, in case that others take the frames meanwhile or a page cannot move.
const TRIES: u32 = 4;

impl<M: Machine> Memory<M> {
    /// Empties blocks until one is free, and returns its first frame. The caller holds nothing.
    ///
    /// # Errors
    /// [`NoMemory`] if there is none.
    pub(crate) fn make_block(&'static self) -> Result<Frame, NoMemory> {
        let (all, size) = (self.machine().frames().extent(), ENTRIES as u64);
        let blocks = all.start.div_ceil(size)..all.end / size;
        let (mut tries, mut at) = (0, self.huge.scan.block.load(Ordering::Relaxed));
        for _ in blocks.clone() {
            at = match blocks.contains(&at) {
                true => at,
                false => blocks.start,
            };
            let frames = at * size..(at + 1) * size;
            at += 1;
            if self.may_empty(frames.start) {
                tries += 1;
                self.huge.scan.block.store(at, Ordering::Relaxed);
                let _ = self.evacuate(frames);
                let machine = self.machine();
                machine.frames().give_up_kept(machine.cpu());
                match self.allocate_huge() {
                    Err(_) if tries < TRIES => {}
                    result => return result,
                }
            }
            cond_resched(self.machine());
        }
        Err(NoMemory)
    }

    /// Whether a block, given by its first frame, is likely to be emptied with profit.
    fn may_empty(&self, first: u64) -> bool {
        let mut used = 0;
        for frame in (first..first + ENTRIES as u64).map(Frame) {
            let Some(descriptor) = self.machine().frames().find(frame) else {
                return false;
            };
            let flags = descriptor.flags();
            let moves = flags.has(Flags::ANONYMOUS) || flags.has(Flags::FILE);
            match descriptor.is_used() {
                true if moves && descriptor.pins() == 0 => used += 1,
                true => return false,
                // A table, or another of the core's own frames, or one of the port.
                false if !moves && !flags.has(Flags::FREE) && flags != Flags::NONE => return false,
                false => {}
            }
        }
        used <= ENTRIES / 2
    }
}
