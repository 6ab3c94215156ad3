//! Frames that compaction isolates, and returns when an allocation needs them.
//!
//! Frames of a range that is being emptied ([`crate::reclaim::compact`]) must not be reused before the whole
//! range is free. They are therefore taken out of the frame source.
//!
//! * These may be all the free frames there are. An allocation that finds none takes some of these before it
//!   fails, and the compaction then ends. So compaction makes no allocation fail, except for the frame or two
//!   that it holds itself.
//! * Frames return to the source under the lock, a batch at a time. An allocation that finds none in the
//!   source, and isolated frames here, waits for the lock and then finds some in either place.
//!
//! *Writes*: the lock's line and the line of the count, by compaction and by an allocation that finds no
//! frame. An allocation that succeeds reads neither.

use faultless_frames::{FrameSource, NoMemory};
use faultless_paging::Frame;
use faultless_sync::atomic::{AtomicU64, Ordering};
use faultless_sync::{Mutant, SpinLock, mutant};

use crate::base::frame_list::FrameList;
use crate::base::machine::Machine;

/// Frames returned in one hold of the lock.
const BATCH: u64 = 32;

/// The frames that all compactions have isolated.
pub(crate) struct IsolatedFrames {
    /// How many frames are isolated: a hint, changed under the lock.
    count: AtomicU64,
    list: SpinLock<List>,
}

#[derive(Default)]
struct List {
    frames: FrameList,
    /// Compactions at work.
    running: u64,
    /// How often an allocation has taken frames.
    taken: u64,
}

/// A compaction at work. What it has isolated is free again when all concurrent compactions have ended.
pub(crate) struct Isolating<'a, M: Machine> {
    kept: &'a IsolatedFrames,
    machine: &'a M,
    /// `List::taken` when this compaction began.
    taken: u64,
}

impl IsolatedFrames {
    /// No isolated frames.
    pub(crate) fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            list: SpinLock::new(List::default()),
        }
    }

    /// Begins a compaction.
    pub(crate) fn begin<'a, M: Machine>(&'a self, machine: &'a M) -> Isolating<'a, M> {
        let mut list = self.list.lock(machine);
        list.running += 1;
        let taken = list.taken;
        drop(list);
        Isolating {
            kept: self,
            machine,
            taken,
        }
    }

    /// Returns a batch to the source for an allocation that has found no frame. Whether there may be frames
    /// now.
    #[cold]
    pub(crate) fn give_up<M: Machine>(&self, machine: &M) -> bool {
        // Relaxed: only a hint. An allocation that finds no frame because all are isolated has synchronised
        // with the compaction at the source's lock.
        if self.count.load(Ordering::Relaxed) == 0 || mutant(Mutant::KeptFromOthers) {
            return false;
        }
        let mut list = self.list.lock(machine);
        list.taken += 1;
        self.give_back(&mut list, machine);
        true
    }

    /// Returns a batch to the source. Whether there was any.
    fn give_back<M: Machine>(&self, list: &mut List, machine: &M) -> bool {
        let (source, cpu) = (machine.frames(), machine.cpu());
        let mut count = 0;
        while count < BATCH
            && let Some(frame) = list.frames.pop(source)
        {
            source.free(cpu, frame);
            count += 1;
        }
        // Relaxed: the count may lag behind the frames, which only makes the hint worse.
        self.count.fetch_sub(count, Ordering::Relaxed);
        count > 0
    }
}

impl<M: Machine> Isolating<'_, M> {
    /// Isolates a frame that the caller owns.
    ///
    /// # Errors
    /// [`NoMemory`]: an allocation has found no frame since this compaction began. The frame is free then.
    pub(crate) fn keep(&self, frame: Frame) -> Result<(), NoMemory> {
        let source = self.machine.frames();
        let mut list = self.kept.list.lock(self.machine);
        if list.taken != self.taken {
            source.free(self.machine.cpu(), frame);
            return Err(NoMemory);
        }
        list.frames.push(source, frame);
        self.kept.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl<M: Machine> Drop for Isolating<'_, M> {
    fn drop(&mut self) {
        let mut list = self.kept.list.lock(self.machine);
        list.running -= 1;
        // A compaction that begins meanwhile keeps the rest.
        while list.running == 0 && self.kept.give_back(&mut list, self.machine) {
            drop(list);
            self.machine.poll();
            list = self.kept.list.lock(self.machine);
        }
    }
}
