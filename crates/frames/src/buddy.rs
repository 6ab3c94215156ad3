//! A binary buddy allocator: lists of free blocks of `2^order` frames, linked through their descriptors.
//!
//! Always used under the lock of [`crate::Frames`].

use faultless_paging::Frame;

use crate::descriptor::{Descriptor, Flags};

/// The largest block: `2^10` frames, 4 MiB.
pub const MAX_ORDER: u32 = 10;

/// The free lists.
pub struct Buddy {
    /// First frame of each list, plus 1, relative to the base; 0 for none.
    heads: [u64; MAX_ORDER as usize + 1],
    free: u64,
}

/// The descriptors of frames `base..base + len`.
#[derive(Clone, Copy)]
pub struct Range<'a> {
    pub base: u64,
    pub descriptors: &'a [Descriptor],
}

impl Range<'_> {
    fn at(&self, index: u64) -> &Descriptor {
        &self.descriptors[index as usize]
    }
}

impl Buddy {
    pub const fn new() -> Self {
        Self {
            heads: [0; MAX_ORDER as usize + 1],
            free: 0,
        }
    }

    /// Returns the number of free frames.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Allocates a block of `2^order` frames.
    pub fn allocate(&mut self, range: Range<'_>, order: u32) -> Option<Frame> {
        let from = (order..=MAX_ORDER).find(|&o| self.heads[o as usize] != 0)?;
        let index = self.heads[from as usize] - 1;
        self.remove(range, index, from);
        // Return the upper halves that are not needed.
        for half in (order..from).rev() {
            self.insert(range, index + (1 << half), half);
        }
        self.free -= 1 << order;
        Some(Frame(range.base + index))
    }

    /// Allocates a block of at most `most` frames (at least 1). Returns its first frame and its order.
    ///
    /// It prefers a block of the largest order that fits. Otherwise it takes the smallest free block, so that
    /// large blocks stay whole, and takes all of it, up to `most` frames. Neighbours then cost one list
    /// operation together; that is as many cache misses as a free frame's descriptor has links. (Always
    /// taking the smallest block first would leave fragments forever after one odd frame: 32 frames in five
    /// pieces each time, 1 % of a fault.)
    pub fn allocate_some(&mut self, range: Range<'_>, most: u64) -> Option<(Frame, u32)> {
        let largest = most.ilog2();
        let order = if self.heads[largest as usize] != 0 {
            largest
        } else {
            let smallest = self.heads.iter().position(|&head| head != 0)? as u32;
            smallest.min(largest)
        };
        Some((self.allocate(range, order)?, order))
    }

    /// Frees a block and merges it with free neighbours.
    pub fn release(&mut self, range: Range<'_>, frame: Frame, order: u32) {
        let mut index = frame.0 - range.base;
        // Only the first descriptor of a free block has its flags and order.
        range.at(index).set_flags(Flags::NONE);
        let mut order = order;
        self.free += 1 << order;
        while order < MAX_ORDER {
            let buddy = (range.base + index) ^ (1 << order);
            if buddy < range.base {
                break;
            }
            let buddy = buddy - range.base;
            let Some(other) = range.descriptors.get(buddy as usize) else {
                break;
            };
            if !other.flags().has(Flags::FREE) || other.order() != order {
                break;
            }
            self.remove(range, buddy, order);
            index = index.min(buddy);
            order += 1;
        }
        self.insert(range, index, order);
    }

    fn insert(&mut self, range: Range<'_>, index: u64, order: u32) {
        let head = &mut self.heads[order as usize];
        let descriptor = range.at(index);
        descriptor.set_flags(Flags::FREE);
        descriptor.set_order(order);
        descriptor.set_link(*head);
        descriptor.set_previous(0);
        if *head != 0 {
            range.at(*head - 1).set_previous(index + 1);
        }
        *head = index + 1;
    }

    fn remove(&mut self, range: Range<'_>, index: u64, order: u32) {
        let descriptor = range.at(index);
        let (previous, next) = (descriptor.previous(), descriptor.link());
        match previous {
            0 => self.heads[order as usize] = next,
            p => range.at(p - 1).set_link(next),
        }
        if next != 0 {
            range.at(next - 1).set_previous(previous);
        }
        descriptor.set_flags(Flags::NONE);
    }

    /// Calls `visit` with every free block, until `visit` fails.
    pub fn for_each<E>(
        &self,
        range: Range<'_>,
        visit: &mut dyn FnMut(Frame, u32) -> Result<(), E>,
    ) -> Result<(), E> {
        for (order, head) in self.heads.iter().enumerate() {
            let mut at = *head;
            while at != 0 {
                visit(Frame(range.base + at - 1), order as u32)?;
                at = range.at(at - 1).link();
            }
        }
        Ok(())
    }
}
