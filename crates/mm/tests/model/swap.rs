//! A swap device of a few slots, which holds a page as the machine does: as one word.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Mutex;

use faultless_mm::{DeviceError, Errno, Memory, PAGE_SIZE, SlotCache, SwapDevice};

use super::machine::Model;

/// The content of a page.
type Page = [u8; PAGE_SIZE as usize];

/// The device.
pub struct Store {
    memory: &'static Memory<Model>,
    slots: u64,
    words: Mutex<HashMap<u64, u64>>,
    refuses: Mutex<bool>,
    is_slow: Mutex<bool>,
    caches: *mut [SlotCache],
}

// SAFETY: the pointer is used once, by `end`.
unsafe impl Send for Store {}
// SAFETY: as above.
unsafe impl Sync for Store {}

impl Store {
    /// Gives the machine a device with `slots` slots. [`Store::end`] takes it away.
    pub fn begin(memory: &'static Memory<Model>, slots: u64) -> &'static Self {
        let caches: Vec<_> = memory.cpus().iter().map(|_| SlotCache::default()).collect();
        let caches = Box::into_raw(caches.into_boxed_slice());
        let store: &'static Self = Box::leak(Box::new(Self {
            memory,
            slots,
            words: Mutex::default(),
            refuses: Mutex::default(),
            is_slow: Mutex::default(),
            caches,
        }));
        // SAFETY: made above, and freed by `end`.
        let number = memory.swap_on(store, unsafe { &*caches }, None);
        assert_eq!(number, Ok(0));
        store
    }

    /// Begins its use again, after that has ended.
    ///
    /// # Errors
    /// `EBUSY`: it is in use.
    pub fn begin_again(&'static self) -> Result<u32, Errno> {
        // SAFETY: made in `begin`, and freed by `end`.
        self.memory.swap_on(self, unsafe { &*self.caches }, None)
    }

    /// Refuses all writes from now on: pages stay in their frames.
    pub fn refuse(&self) {
        *self.refuses.lock().unwrap() = true;
    }

    /// Makes the device slow, and lets faults read ahead.
    pub fn slow_down(&self) {
        *self.is_slow.lock().unwrap() = true;
        self.memory.set_read_ahead(8);
    }

    /// Returns how many slots have a page.
    pub fn used(&self) -> usize {
        self.words.lock().unwrap().len()
    }

    /// Ends the device, once nothing uses it.
    pub fn end(&'static self) {
        assert_eq!(self.used(), 0, "a slot was lost");
        // SAFETY: no entry names a slot, and nothing else runs.
        unsafe { self.memory.end_swap() };
        let caches = self.caches;
        let store = std::ptr::from_ref(self).cast_mut();
        // SAFETY: leaked in `begin`, and no other reference is left.
        unsafe {
            drop(Box::from_raw(store));
            drop(Box::from_raw(caches));
        }
    }
}

impl SwapDevice for Store {
    fn slots(&self) -> u64 {
        self.slots
    }

    fn write(&self, slot: u64, page: &Page) -> Result<(), DeviceError> {
        let machine = self.memory.machine();
        machine.step();
        if *self.refuses.lock().unwrap() {
            return Err(DeviceError::Full);
        }
        let word = machine.word(machine.frame_at(NonNull::from(page).cast()));
        let before = self.words.lock().unwrap().insert(slot, word);
        assert_eq!(before, None, "a slot is written twice");
        Ok(())
    }

    fn read(&self, slot: u64, page: &mut Page) -> Result<(), DeviceError> {
        let machine = self.memory.machine();
        machine.step();
        let word = self.words.lock().unwrap().get(&slot).copied();
        let word = word.ok_or(DeviceError::Failed)?;
        machine.set_word(machine.frame_at(NonNull::from(page).cast()), word);
        Ok(())
    }

    fn discard(&self, slot: u64) {
        self.words.lock().unwrap().remove(&slot);
    }

    fn is_fast(&self) -> bool {
        !*self.is_slow.lock().unwrap()
    }
}
