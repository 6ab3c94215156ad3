//! What compaction keeps for a while, and gives up when somebody needs it.
//!
//! Frames of a range that is being emptied ([`crate::reclaim::compact`]) must not be used again before
//! the range is free as a whole. They are taken out of the source for that, which may be
//! all the free frames there are. So whoever finds none looks here before it says so, and takes
//! some; the compaction then ends. Nobody fails because memory is being put in order, but for
//! the frame or two that compaction has in hand.
//!
//! Frames go back to the source under the lock, a few at a time: whoever has found none there, and
//! something here, waits for the lock and finds some in either place.
//!
//! Written lines: the lock's, and that of the count beside it, by compaction and by who finds no
//! frame. An allocation that succeeds reads neither.

use faultless_frames::{FrameSource, NoMemory};
use faultless_paging::Frame;
use faultless_sync::atomic::{AtomicU64, Ordering};
use faultless_sync::{Mutant, SpinLock, mutant};

use crate::base::frame_list::FrameList;
use crate::base::machine::Machine;

/// Frames that go back while the lock is held once.
const BATCH: u64 = 32;

/// What all compactions keep.
pub(crate) struct IsolatedFrames {
    /// How many frames that is: a hint, changed under the lock.
    count: AtomicU64,
    list: SpinLock<List>,
}

#[derive(Default)]
struct List {
    frames: FrameList,
    /// Compactions at work.
    running: u64,
    /// How often somebody has taken some.
    taken: u64,
}

/// A compaction at work. What it keeps is free again when all that work at once have ended.
pub(crate) struct Isolating<'a, M: Machine> {
    kept: &'a IsolatedFrames,
    machine: &'a M,
    /// How often somebody had taken some when it began.
    taken: u64,
}

impl IsolatedFrames {
    /// Nothing.
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

    /// Gives some back, because somebody has found no frame. Whether there may be some now.
    #[cold]
    pub(crate) fn give_up<M: Machine>(&self, machine: &M) -> bool {
        // Relaxed: no more than a hint. Whoever finds no frame because all are kept has met who
        // keeps them in the source, at its lock.
        if self.count.load(Ordering::Relaxed) == 0 || mutant(Mutant::KeptFromOthers) {
            return false;
        }
        let mut list = self.list.lock(machine);
        list.taken += 1;
        self.give_back(&mut list, machine);
        true
    }

    /// Gives a batch back; whether there was any.
    fn give_back<M: Machine>(&self, list: &mut List, machine: &M) -> bool {
        let (source, cpu) = (machine.frames(), machine.cpu());
        let mut count = 0;
        while count < BATCH
            && let Some(frame) = list.frames.pop(source)
        {
            source.free(cpu, frame);
            count += 1;
        }
        // Relaxed: behind the frames, which is only a matter of how good the hint is.
        self.count.fetch_sub(count, Ordering::Relaxed);
        count > 0
    }
}

impl<M: Machine> Isolating<'_, M> {
    /// Keeps a frame of the caller's.
    ///
    /// # Errors
    /// [`NoMemory`]: somebody has found no frame since this began. The frame is free then.
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
        // Whoever begins meanwhile keeps the rest.
        while list.running == 0 && self.kept.give_back(&mut list, self.machine) {
            drop(list);
            self.machine.poll();
            list = self.kept.list.lock(self.machine);
        }
    }
}
