//! Compaction: pages leave a range of frames, so that it becomes free as a whole.
//!
//! Every page in the range is moved elsewhere ([`crate::rmap::migrate`]). What comes free in the
//! range meanwhile is kept until the end, so that nothing goes back there, unless somebody finds no
//! frame at all ([`crate::base::isolated`]). What cannot be moved stays: tables, small objects, pages that are
//! pinned or just in use.
//!
//! Written lines: those of moving pages, and of what is kept.

use core::ops::Range;

use faultless_frames::{FrameSource, NoMemory};
use faultless_paging::Frame;

use crate::base::isolated::Isolating;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::rmap::migrate::{Mover, NotMoved};

/// What became of a range of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evacuated {
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
    /// Free frames that it comes upon in the range are not to be had meanwhile, but to others that
    /// find none elsewhere: they get all of them, and this ends.
    ///
    /// # Errors
    /// [`NoMemory`] when there is no frame elsewhere, or others have found none; what was moved
    /// before stays moved.
    pub fn evacuate(&'static self, frames: Range<u64>) -> Result<Evacuated, NoMemory> {
        let machine = self.machine();
        let all = machine.frames().extent();
        let range = frames.start.max(all.start)..frames.end.min(all.end);
        if range.is_empty() {
            return Ok(Evacuated::default());
        }
        if range == all {
            // There is nothing elsewhere, and no use in looking.
            return Err(NoMemory);
        }
        let mut mover = Mover::new(self)?;
        let keeping = self.isolated.begin(machine);
        let mut vacated = Evacuated::default();
        let mut target = None;
        for frame in range.clone().map(Frame) {
            let to = match target.take() {
                Some(to) => to,
                None => self.frame_outside(&range, &keeping)?,
            };
            match mover.migrate(frame, to) {
                Ok(()) => {
                    vacated.moved += 1;
                    keeping.keep(frame)?;
                }
                Err(why) => {
                    vacated.busy += u64::from(why == NotMoved::Busy);
                    target = Some(to);
                }
            }
            machine.poll();
        }
        if let Some(target) = target {
            machine.frames().free(machine.cpu(), target);
        }
        Ok(vacated)
    }

    /// A frame that is not one of `range`; what comes from there is kept.
    fn frame_outside(
        &self,
        range: &Range<u64>,
        keeping: &Isolating<'_, M>,
    ) -> Result<Frame, NoMemory> {
        let machine = self.machine();
        loop {
            let frame = self.allocate_frame_beside_kept()?;
            if !range.contains(&frame.0) {
                return Ok(frame);
            }
            keeping.keep(frame)?;
            machine.poll();
        }
    }
}
