//! More places in a list of ranges, where there are almost none left.
//!
//! A list has memory for some, which is enough for most spaces for ever. Where more writers are at work at once, who
//! comes brings a frame with more, before he waits for anything in that list. It stays until the space ends. Without memory
//! he waits for a place.
//!
//! Written lines: the list's lock; four times for a list, at most.

use faultless_paging::{Frame, PAGE_SIZE};
use faultless_sync::{RangeLock, SlotChunk};

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::lock::Mappings;
use crate::lock::shard::Shards;

const _: () = assert!(size_of::<SlotChunk>() <= PAGE_SIZE as usize);

impl<M: Machine> Mappings<M> {
    /// Adds places to a list that has almost none left. For who has nothing of that list.
    #[inline]
    pub(crate) fn make_room(&self, list: &RangeLock) {
        if list.is_scarce() {
            self.add_room(list);
        }
    }

    #[cold]
    fn add_room(&self, list: &RangeLock) {
        let Ok(frame) = self.memory.take_space_frame() else {
            return;
        };
        let room = self.machine().pointer(frame).cast::<SlotChunk>();
        // SAFETY: a frame of ours, large enough and aligned.
        unsafe { room.write(SlotChunk::new(frame.0)) };
        // SAFETY: it is nobody else's, and given back with the list.
        if !unsafe { list.add_room(room, self.machine()) } {
            // Another was quicker.
            self.memory.give_space_frame(frame);
        }
    }

    /// Calls `visit` with the frames of all places that were added.
    pub(crate) fn for_each_room(&self, mut visit: impl FnMut(Frame)) {
        let arenas = self.arenas().into_iter().flat_map(Shards::all);
        let lists = arenas.map(|arena| &*arena.ranges).chain([&*self.ranges]);
        for list in lists {
            list.for_each_room(self.machine(), |tag| visit(Frame(tag)));
        }
    }
}

/// Gives the places back that were added to a list, which ends.
pub(crate) fn give_chunks<M: Machine>(memory: &Memory<M>, list: &RangeLock) {
    list.for_each_room(memory.machine(), |tag| memory.give_space_frame(Frame(tag)));
}
