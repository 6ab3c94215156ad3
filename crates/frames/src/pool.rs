//! The pool of huge pages: blocks of frames that are kept for mappings that ask for them (Linux: hugetlb).
//!
//! * A block belongs to the pool from [`HugePool::resize`] on, whatever its frames are used for. It is free, or some of its frames
//!   are used. When the last of them is freed, alone or with the others, the block is free again. So a huge page of the pool may
//!   be split like any other.
//! * A *reservation* is the right to a block. There are never fewer free blocks than reservations, but for blocks that were taken
//!   for a reservation that is not ended yet.
//! * A count in the first frame's descriptor says whether a block is the pool's. While no block ever was, freeing a frame pays one
//!   load.
//!
//! *Writes*: one lock's line, for each huge page; the block's count, for each frame that is freed.

use faultless_paging::{ENTRIES, Frame};
use faultless_sync::atomic::{AtomicU32, Ordering};
use faultless_sync::{Cpu, SpinLock, Wait};

use crate::descriptor::Descriptor;
use crate::source::{FrameSource, NoMemory};

/// How many blocks there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSizes {
    /// Blocks of the pool.
    pub total: u64,
    /// Those of which no frame is used.
    pub free: u64,
    /// Reservations.
    pub reserved: u64,
    /// Blocks beyond those that are wanted: they leave the pool when they become free.
    pub surplus: u64,
}

struct Blocks {
    /// The first frame of the first free block plus 1; 0 for none. The others follow by their descriptors' links.
    head: u64,
    sizes: PoolSizes,
}

/// The pool of a frame source.
pub struct HugePool {
    blocks: SpinLock<Blocks>,
    /// Whether there ever was a block. Then descriptors say which are the pool's.
    has_any: AtomicU32,
}

impl HugePool {
    /// Returns a pool without blocks.
    pub(crate) fn new() -> Self {
        let (head, sizes) = (0, PoolSizes::default());
        Self {
            blocks: SpinLock::new(Blocks { head, sizes }),
            has_any: AtomicU32::new(0),
        }
    }

    /// Returns how many blocks there are.
    pub fn sizes(&self, machine: &impl Wait) -> PoolSizes {
        self.blocks.lock(machine).sizes
    }

    /// Makes `count` reservations. Returns whether there are so many blocks.
    pub fn reserve(&self, machine: &impl Wait, count: u64) -> bool {
        let sizes = &mut self.blocks.lock(machine).sizes;
        let has_room = sizes.free.saturating_sub(sizes.reserved) >= count;
        if has_room {
            sizes.reserved += count;
        }
        has_room
    }

    /// Ends reservations: because they are not needed any more, or because their blocks were taken and are now used.
    pub fn end_reservations(&self, machine: &impl Wait, count: u64) {
        let sizes = &mut self.blocks.lock(machine).sizes;
        debug_assert!(
            sizes.reserved >= count,
            "more reservations end than there are"
        );
        sizes.reserved = sizes.reserved.saturating_sub(count);
    }

    /// Takes a block, for a reservation or without one, and returns its first frame. The caller ends the reservation when it uses
    /// the block, and otherwise frees the block.
    pub fn take(
        &self,
        source: &impl FrameSource,
        machine: &impl Wait,
        is_reserved: bool,
    ) -> Option<Frame> {
        let mut blocks = self.blocks.lock(machine);
        let kept = if is_reserved {
            0
        } else {
            blocks.sizes.reserved
        };
        if blocks.sizes.free <= kept {
            return None;
        }
        let first = self.pop(&mut blocks, source)?;
        drop(blocks);
        // The caller has all of its frames.
        self.count_of(source, first)?
            .store(ENTRIES as u32 + 1, Ordering::Relaxed);
        Some(first)
    }

    fn pop(&self, blocks: &mut Blocks, source: &impl FrameSource) -> Option<Frame> {
        let first = Frame(blocks.head.checked_sub(1)?);
        blocks.head = source.descriptor(first).link();
        blocks.sizes.free -= 1;
        Some(first)
    }

    fn push(&self, blocks: &mut Blocks, source: &impl FrameSource, first: Frame) {
        source.descriptor(first).set_link(blocks.head);
        blocks.head = first.0 + 1;
        blocks.sizes.free += 1;
    }

    /// Whether there ever was a block.
    #[inline(always)]
    pub(crate) fn has_any(&self) -> bool {
        // A CPU that frees a frame of the pool has seen that there is one.
        self.has_any.load(Ordering::Relaxed) != 0
    }

    /// Returns the count of the block of a frame: 0, or the number of frames that are used plus 1. `None`: there was never any.
    #[inline]
    fn count_of<'s>(&self, source: &'s impl FrameSource, frame: Frame) -> Option<&'s AtomicU32> {
        if !self.has_any() {
            return None;
        }
        let first = Frame(frame.0 & !(ENTRIES as u64 - 1));
        source.find(first).map(Descriptor::pooled)
    }

    /// Whether a frame belongs to a block of the pool.
    #[inline]
    pub fn has(&self, source: &impl FrameSource, frame: Frame) -> bool {
        let count = self.count_of(source, frame);
        count.is_some_and(|count| count.load(Ordering::Relaxed) != 0)
    }

    /// Gives back `frames` frames of a block of the pool, from `frame` on. Nothing uses them.
    #[cold]
    pub(crate) fn give_back(
        &self,
        source: &impl FrameSource,
        machine: &impl Wait,
        (cpu, frame): (Cpu, Frame),
        frames: u32,
    ) {
        let Some(count) = self.count_of(source, frame) else {
            return;
        };
        // Release and acquire: what other CPUs have done with their frames comes before the next use of the block.
        if count.fetch_sub(frames, Ordering::AcqRel) != frames + 1 {
            return;
        }
        let first = Frame(frame.0 & !(ENTRIES as u64 - 1));
        let mut blocks = self.blocks.lock(machine);
        self.push(&mut blocks, source, first);
        drop(blocks);
        self.drop_surplus(source, machine, cpu);
    }

    /// Removes free blocks that are not wanted any more.
    pub fn drop_surplus(&self, source: &impl FrameSource, machine: &impl Wait, cpu: Cpu) {
        loop {
            let sizes = self.blocks.lock(machine).sizes;
            let has_some = sizes.surplus > 0 && sizes.free > sizes.reserved;
            if !has_some || !self.shrink(source, machine, cpu) {
                return;
            }
        }
    }

    /// Adds or removes blocks, until there are `total`, or as near to that as free memory and free blocks without reservations
    /// allow. What is too much then leaves when it becomes free. Returns how many there are.
    pub fn resize<M: Wait>(
        &self,
        source: &impl FrameSource,
        machine: &M,
        cpu: Cpu,
        total: u64,
    ) -> u64 {
        loop {
            let now = {
                let sizes = &mut self.blocks.lock(machine).sizes;
                sizes.surplus = sizes.total.saturating_sub(total);
                sizes.total
            };
            let is_changed = match now.cmp(&total) {
                core::cmp::Ordering::Equal => return now,
                core::cmp::Ordering::Less => self.grow(source, machine, cpu).is_ok(),
                core::cmp::Ordering::Greater => self.shrink(source, machine, cpu),
            };
            if !is_changed {
                return self.sizes(machine).total;
            }
            machine.poll();
        }
    }

    fn grow<M: Wait>(
        &self,
        source: &impl FrameSource,
        machine: &M,
        cpu: Cpu,
    ) -> Result<(), NoMemory> {
        let first = source.allocate_huge(cpu)?;
        self.has_any.store(1, Ordering::Relaxed);
        if let Some(count) = self.count_of(source, first) {
            count.store(1, Ordering::Relaxed);
        }
        let mut blocks = self.blocks.lock(machine);
        blocks.sizes.total += 1;
        self.push(&mut blocks, source, first);
        Ok(())
    }

    fn shrink(&self, source: &impl FrameSource, machine: &impl Wait, cpu: Cpu) -> bool {
        let mut blocks = self.blocks.lock(machine);
        if blocks.sizes.free <= blocks.sizes.reserved {
            return false;
        }
        let Some(first) = self.pop(&mut blocks, source) else {
            return false;
        };
        blocks.sizes.total -= 1;
        blocks.sizes.surplus = blocks.sizes.surplus.saturating_sub(1);
        drop(blocks);
        if let Some(count) = self.count_of(source, first) {
            count.store(0, Ordering::Relaxed);
        }
        source.free_huge(cpu, first);
        true
    }

    /// Calls `visit` with every frame of the free blocks. Nothing else runs meanwhile.
    pub(crate) fn for_each_free<E>(
        &self,
        source: &impl FrameSource,
        machine: &impl Wait,
        visit: &mut impl FnMut(Frame) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut next = self.blocks.lock(machine).head;
        while let Some(first) = next.checked_sub(1) {
            (first..first + ENTRIES as u64).try_for_each(|frame| visit(Frame(frame)))?;
            next = source.descriptor(Frame(first)).link();
        }
        Ok(())
    }
}
