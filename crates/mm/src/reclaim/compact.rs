//! Compaction: moves pages out of a range of frames, so that the whole range becomes free.
//!
//! Every page in the range is moved elsewhere ([`crate::rmap::migrate`]). Frames that become free in the range
//! are isolated until the end, so that they are not reused, unless an allocation finds no other frame
//! ([`crate::base::isolated`]). What cannot be moved stays: tables, small objects, pages that are pinned or in
//! use at that moment.
//!
//! *Writes*: what moving pages and isolating frames write.

use core::ops::Range;

use faultless_frames::{FrameSource, NoMemory};
use faultless_paging::Frame;

use crate::base::isolated::Isolating;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::rmap::claims::NotMoved;
use crate::rmap::migrate::Mover;

/// The result for a range of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evacuated {
    /// Pages that were moved elsewhere.
    pub moved: u64,
    /// Pages that are still there.
    pub busy: u64,
}

impl<M: Machine> Memory<M> {
    /// Moves the pages in a range of the machine's frames elsewhere, while other CPUs fault, write and fork.
    /// Frames that are already free, are used for something else, or are not the machine's stay as they are.
    ///
    /// Free frames that it finds in the range are isolated meanwhile. An allocation that finds no frame
    /// elsewhere gets all of them, and this ends.
    ///
    /// # Errors
    /// [`NoMemory`] when there is no frame elsewhere, or another allocation has found none. Pages already moved
    /// stay moved.
    pub fn evacuate(&'static self, frames: Range<u64>) -> Result<Evacuated, NoMemory> {
        let machine = self.machine();
        let all = machine.frames().extent();
        let range = frames.start.max(all.start)..frames.end.min(all.end);
        if range.is_empty() {
            return Ok(Evacuated::default());
        }
        if range == all {
            // There is no frame elsewhere to look for.
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

    /// Returns a frame outside of `range`. Isolates the frames of the range that it is given.
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
