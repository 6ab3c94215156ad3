//! The mmap lock of `classic` and `vma-lock`, as writers hold it.

use faultless_sync::atomic::Ordering;
use faultless_sync::{ReadGuard, WriteGuard};

use crate::base::machine::Machine;
use crate::base::notes::Note;
use crate::lock::Mappings;

/// The hold of the mmap lock during a zap.
pub(crate) enum MmapHold<'a, M: Machine> {
    Read { _guard: ReadGuard<'a, M> },
    Write { _lock: MmapLock<'a, M> },
}

/// The mmap lock, for writing.
pub(crate) struct MmapLock<'a, M: Machine> {
    pub(super) space: &'a Mappings<M>,
    pub(super) guard: Option<WriteGuard<'a, M>>,
}

impl<'a, M: Machine> MmapLock<'a, M> {
    /// Ends the write hold, and downgrades the lock to reading; or keeps it for writing, for comparisons.
    pub(super) fn for_zap(mut self) -> Option<MmapHold<'a, M>> {
        if self.space.has_note(Note::HELD_ZAPS) {
            return Some(MmapHold::Write { _lock: self });
        }
        self.end_hold();
        let guard = self.guard.take().map(WriteGuard::downgrade);
        guard.map(|guard| MmapHold::Read { _guard: guard })
    }

    fn end_hold(&self) {
        if self.guard.is_some() {
            // Release: a fault that finds its mapping unlocked sees what was changed (acquire in
            // `VmaLock::try_read`).
            let hold = self.space.busy.write_hold.load(Ordering::Relaxed);
            self.space
                .busy
                .write_hold
                .store(hold.wrapping_add(1), Ordering::Release);
        }
    }
}

impl<M: Machine> Drop for MmapLock<'_, M> {
    fn drop(&mut self) {
        self.end_hold();
    }
}
