//! Shared parts of this crate's models: exploration, and a memory of a few frames that hold tables.
#![allow(dead_code)]

#[path = "../../../sync/tests/model/explore.rs"]
mod explore;

use std::ptr::NonNull;

use faultless_paging::{Entry, Frame, Page, PhysicalMemory, Table, Walk, X86_64, walk};
use faultless_sync::Wait;
use faultless_sync::atomic::AtomicU32;
use loom::thread;

pub use explore::explore;

/// The root table's frame.
pub const ROOT: Frame = Frame(1);

/// Memory with tables in all frames, prepared and empty.
pub struct Memory(Vec<TableFrame>);

/// A table, on cache lines of its own.
#[repr(C, align(4096))]
struct TableFrame([Entry; faultless_paging::ENTRIES]);

impl Memory {
    /// `tables` tables beside the root, in frames 2 and up.
    pub fn new(tables: usize) -> Self {
        let table = |_| TableFrame(std::array::from_fn(|_| Entry::new()));
        Self((0..=tables).map(table).collect())
    }

    /// An entry of a table, reached without a walk.
    pub fn entry(&self, table: Frame, number: u64) -> &Entry {
        // SAFETY: frames of this memory are tables as long as it lives.
        unsafe { Table::at(self, table) }.entry(number, 0)
    }

    /// Walks to a page.
    pub fn walk(&self, page: u64) -> Walk<'_> {
        // SAFETY: a table is never reused in this memory.
        unsafe { walk::<X86_64, Self>(self, ROOT, Page(page)) }
    }
}

impl PhysicalMemory for Memory {
    fn pointer(&self, frame: Frame) -> NonNull<u8> {
        NonNull::from(&self.0[frame.0 as usize - 1]).cast()
    }
}

impl Wait for Memory {
    fn relax(&self, _turn: u32) {
        thread::yield_now();
    }
    fn park(&self, _word: &AtomicU32, _expected: u32) {
        thread::yield_now();
    }
    fn wake(&self, _word: &AtomicU32, _count: u32) {}
}
