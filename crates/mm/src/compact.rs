//! Compaction: pages leave a range of frames, so that it becomes free as a whole.
//!
//! Every page in the range is moved elsewhere ([`crate::migrate`]). What comes free in the
//! range meanwhile is kept until the end, so that nothing goes back there. What
//! cannot be moved stays: tables, small objects, pages that are pinned or just in use.
//!
//! Written lines: those of moving pages.

use core::ops::Range;

use faultless_frames::{FrameSource, NoMemory};
use faultless_paging::Frame;

use crate::machine::Machine;
use crate::memory::Memory;
use crate::migrate::{Mover, NotMoved};
use crate::zap::Chain;

/// What became of a range of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vacated {
    /// Pages that went elsewhere.
    pub moved: u64,
    /// Pages that are still there.
    pub busy: u64,
}

impl<M: Machine> Memory<M> {
    /// Moves the pages in a range of the machine's frames elsewhere, while others fault, write
    /// and fork. Frames that are free already, used for something else, or not the machine's stay
    /// what they are.
    ///
    /// # Errors
    /// [`NoMemory`] when there is no frame elsewhere; what was moved before stays moved.
    pub fn vacate(&'static self, frames: Range<u64>) -> Result<Vacated, NoMemory> {
        let machine = self.machine();
        let source = machine.frames();
        let mut mover = Mover::new(self)?;
        let mut kept = Chain::default();
        let mut vacated = Vacated::default();
        let mut result = Ok(());
        let mut target = None;
        for frame in frames.clone().map(Frame) {
            let to = match target.take() {
                Some(to) => to,
                None => match self.frame_outside(&frames, &mut kept) {
                    Ok(to) => to,
                    Err(none) => {
                        result = Err(none);
                        break;
                    }
                },
            };
            match mover.migrate(frame, to) {
                Ok(()) => {
                    vacated.moved += 1;
                    kept.push(source, frame);
                }
                Err(why) => {
                    vacated.busy += u64::from(why == NotMoved::Busy);
                    target = Some(to);
                }
            }
            machine.poll();
        }
        if let Some(target) = target {
            source.free(machine.cpu(), target);
        }
        kept.free_all(machine);
        result.map(|()| vacated)
    }

    /// A frame that is not one of `frames`; what comes from there is kept.
    fn frame_outside(&self, frames: &Range<u64>, kept: &mut Chain) -> Result<Frame, NoMemory> {
        loop {
            let frame = self.allocate_frame_to_fill()?;
            if !frames.contains(&frame.0) {
                return Ok(frame);
            }
            kept.push(self.machine().frames(), frame);
        }
    }
}
