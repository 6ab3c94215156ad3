//! A device for the pages of memory objects: it counts requests, and fails on demand.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

use faultless_mm::{Errno, Frame, Pager, PhysicalMemory};
use faultless_soft::SoftMemory;

/// Every word of a page filled by the device is the page's number plus this.
pub const FIRST: u64 = 1000;

/// A device.
pub struct Device {
    memory: &'static SoftMemory,
    has_pages: bool,
    /// The error of reads.
    error: Mutex<Option<Errno>>,
    /// The error of charges, if there is no room for a page.
    full: Mutex<Option<Errno>>,
    reads: AtomicU64,
    charged: AtomicI64,
}

impl Device {
    /// Makes a device that works. It stays for ever.
    pub fn new(memory: &'static SoftMemory) -> &'static Self {
        Self::with(memory, true)
    }

    /// Makes a device without pages: all begin as zeroes, and are charged before they are made.
    pub fn without_pages(memory: &'static SoftMemory) -> &'static Self {
        Self::with(memory, false)
    }

    fn with(memory: &'static SoftMemory, has_pages: bool) -> &'static Self {
        Box::leak(Box::new(Self {
            memory,
            has_pages,
            error: Mutex::new(None),
            full: Mutex::new(None),
            reads: AtomicU64::new(0),
            charged: AtomicI64::new(0),
        }))
    }

    /// From now on every read fails with this error, or none does.
    pub fn fail(&self, error: Option<Errno>) {
        *self.error.lock().unwrap() = error;
    }

    /// From now on every charge fails with this error, or none does.
    pub fn fill_up(&self, error: Option<Errno>) {
        *self.full.lock().unwrap() = error;
    }

    /// The number of reads.
    pub fn reads(&self) -> u64 {
        self.reads.load(SeqCst)
    }

    /// The pages that were charged and not yet uncharged.
    pub fn charged(&self) -> i64 {
        self.charged.load(SeqCst)
    }
}

impl Pager for Device {
    fn has(&self, _tag: u64, _index: u64) -> bool {
        self.has_pages
    }

    fn fill(&self, _tag: u64, index: u64, frame: Frame) -> Result<(), Errno> {
        self.reads.fetch_add(1, SeqCst);
        let at = self.memory.machine().pointer(frame).cast::<[u64; 512]>();
        let error = *self.error.lock().unwrap();
        // A failed read may have written, too.
        let word = if error.is_some() { 666 } else { FIRST + index };
        // SAFETY: the frame is the device's while it fills it.
        unsafe { at.write([word; 512]) };
        error.map_or(Ok(()), Err)
    }

    fn charge(&self, _tag: u64, _index: u64) -> Result<(), Errno> {
        if let Some(error) = *self.full.lock().unwrap() {
            return Err(error);
        }
        self.charged.fetch_add(1, SeqCst);
        Ok(())
    }

    fn uncharge(&self, _tag: u64, _index: u64) {
        self.charged.fetch_sub(1, SeqCst);
    }
}
