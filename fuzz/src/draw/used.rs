//! Memory for programs that page memory out: what is paged out has to be mapped, and used before and afterwards.
//!
//! Such a program begins with mappings of each sort that it may have, with content. Page-outs and accesses mostly go to
//! these, and to later mappings that can be written.

use super::{CENTRE, Draw, HEAP, NEAR, PAGE, REMEMBERED, SLICE, Scene};
use crate::kind::{Kind, NO_FILE};
use crate::kinds::POPULATE_WRITE;
use crate::op::{Actor, Op};
use crate::program::MOST_THREADS;

const READ_WRITE: u64 = 3;
const SHARED: u64 = 0x1;
const PRIVATE: u64 = 0x2;
const FIXED: u64 = 0x10;
const ANONYMOUS: u64 = 0x20;
/// Pages of a mapping at the beginning.
const LENGTH: u64 = 12;
/// Stores to each of them.
const STORES: u64 = 4;
/// Words of two pages.
const WORDS: u64 = 1024;
/// Pages of a range that are used, so that operations meet.
const MOST: u64 = 12;

/// Recent mappings that can be written.
#[derive(Default)]
pub(super) struct Used {
    ranges: [(u64, u64); REMEMBERED],
    count: usize,
}

impl Used {
    fn add(&mut self, start: u64, length: u64) {
        self.ranges[self.count % REMEMBERED] = (start, length);
        self.count += 1;
    }
}

fn op(name: &str, arguments: [u64; 6]) -> Op {
    Op {
        kind: Kind::find(name).unwrap_or_default(),
        actor: Actor::default(),
        beside: false,
        arguments,
    }
}

impl Draw {
    /// The first operations of a program that pages memory out: mappings with content.
    pub(super) fn open(&mut self, ops: &mut Vec<Op>) {
        let length = LENGTH * PAGE;
        let mut map = |at: u64, length: u64, flags: u64, file: u64| {
            let arguments = [at, length, READ_WRITE, flags | FIXED, file, 0];
            ops.push(op("mmap", arguments));
            self.used.add(at, length);
        };
        if self.scene == Scene::Heap {
            ops.push(op("brk", [HEAP + length, 0, 0, 0, 0, 0]));
            self.used.add(HEAP, length);
        } else if self.apart {
            // The ranges of all threads.
            let pages = MOST_THREADS as u64 * SLICE;
            let start = CENTRE - pages / 2 * PAGE;
            map(start, pages * PAGE, PRIVATE | ANONYMOUS, NO_FILE);
        } else {
            map(CENTRE - length, length, PRIVATE | ANONYMOUS, NO_FILE);
            map(CENTRE, length, SHARED | ANONYMOUS, NO_FILE);
            if self.files {
                map(CENTRE + length, length, SHARED, 0);
                map(CENTRE + 2 * length, length, PRIVATE, 1);
                ops.push(op("ftruncate", [0, length, 0, 0, 0, 0]));
                ops.push(op("ftruncate", [1, length, 0, 0, 0, 0]));
            }
        }
        for (start, length) in self.used.ranges.into_iter().take(self.used.count) {
            if self.chance(2, 3) {
                let arguments = [start, length, POPULATE_WRITE, 0, 0, 0];
                ops.push(op("madvise", arguments));
            }
            // A page of zeroes could come from anywhere.
            for _ in 0..STORES {
                let at = start + self.below(length / PAGE) * PAGE + self.pick(&[(2, 0), (1, 64)]);
                ops.push(op("store", [at, self.value(), 0, 0, 0, 0]));
            }
            if self.chance(1, 2) {
                let at = start + self.below(length / PAGE - 1) * PAGE;
                let arguments = [at, WORDS, self.value(), 0, 0, 0];
                ops.push(op("process_vm_writev", arguments));
            }
        }
    }

    /// A page of a recent mapping that can be written.
    pub(super) fn used_page(&mut self) -> u64 {
        if self.slice.is_some() || self.used.count == 0 {
            return self.page();
        }
        let count = self.used.count.min(REMEMBERED) as u64;
        let (start, length) = self.used.ranges[self.below(count) as usize];
        start + self.below((length / PAGE).min(MOST)) * PAGE
    }

    /// An address and a length around such a page.
    pub fn used_range(&mut self) -> (u64, u64) {
        let (page, length) = (self.used_page(), self.length());
        let lowest = match (self.slice, self.scene) {
            (Some((start, _)), _) => start,
            (None, Scene::Heap) => HEAP,
            (None, Scene::Sealed) => CENTRE - NEAR * PAGE,
            (None, Scene::Open | Scene::Huge) => 0,
        };
        let before = self.pick(&[(3, 0), (1, PAGE), (1, 4 * PAGE)]);
        let address = page.saturating_sub(before).max(lowest);
        (address, self.inside(address, length))
    }

    /// Remembers a new mapping that can be written, at an address that the program names.
    pub(super) fn remember_use(&mut self, op: &Op) {
        let [address, length, prot, ..] = op.arguments;
        let is_known = address != 0 && address.is_multiple_of(PAGE) && length <= NEAR * PAGE;
        if op.kind().name == "mmap" && is_known && prot & READ_WRITE == READ_WRITE {
            self.used.add(address, length);
        }
    }
}
