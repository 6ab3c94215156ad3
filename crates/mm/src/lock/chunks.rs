//! Additional slots for a range list that has almost none left.
//!
//! A list has memory for some slots, which is enough for most spaces. If more writers work at the same time,
//! an arriving request brings a frame with more slots. It does so before it waits for anything in that list.
//! The frame stays until the space ends. Without memory, the request waits for a slot.
//!
//! *Writes*: the list's lock, at most four times for a list.

use faultless_paging::{Frame, PAGE_SIZE};
use faultless_sync::{RangeLock, SlotChunk};

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::lock::Mappings;
use crate::lock::shard::Shards;

const _: () = assert!(size_of::<SlotChunk>() <= PAGE_SIZE as usize);

impl<M: Machine> Mappings<M> {
    /// Adds slots to a list that has almost none left. The caller holds nothing in that list.
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
        // SAFETY: no other list has it, and it is freed with the list.
        if !unsafe { list.add_room(room, self.machine()) } {
            // Another writer was faster.
            self.memory.give_space_frame(frame);
        }
    }

    /// Calls `visit` with the frames of all chunks that were added.
    pub(crate) fn for_each_room(&self, mut visit: impl FnMut(Frame)) {
        let shards = self.shards().into_iter().flat_map(Shards::all);
        let lists = shards.map(|shard| &*shard.ranges).chain([&*self.ranges]);
        for list in lists {
            list.for_each_room(self.machine(), |tag| visit(Frame(tag)));
        }
    }
}

/// Frees the chunks that were added to a list, which ends.
pub(crate) fn give_chunks<M: Machine>(memory: &Memory<M>, list: &RangeLock) {
    list.for_each_room(memory.machine(), |tag| memory.give_space_frame(Frame(tag)));
}
