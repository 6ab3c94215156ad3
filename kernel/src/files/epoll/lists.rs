//! An epoll's two lists: all its items, and those that may have events.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use linux_raw_sys::general as linux;

use super::item::Item;
use super::{EVENT_DATA, EVENT_SIZE};
use crate::arch::uaccess;
use crate::errno::{Answer, ENOMEM, Errno};
use crate::files::description::{Description, Object};
use crate::files::readiness::{Events, Readiness};
use crate::sched::wait::{self, Interruptible, Woken};
use crate::shared::Shared;
use crate::sync::SpinLock;

/// How deep epolls may watch epolls, as on Linux.
const DEEPEST: u32 = 5;

pub struct Epoll {
    items: SpinLock<Vec<Shared<Item>>>,
    /// Has room for all items, and has no others while `items` is locked.
    ready: SpinLock<VecDeque<Shared<Item>>>,
    /// Threads that sleep in `sleep`, on this word's address.
    waiting: AtomicU32,
    /// The watchers of this epoll.
    readiness: Readiness,
}

impl Epoll {
    pub const fn new() -> Self {
        Self {
            items: SpinLock::new(Vec::new()),
            ready: SpinLock::new(VecDeque::new()),
            waiting: AtomicU32::new(0),
            readiness: Readiness::new(),
        }
    }

    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Adds an item to the list of all, and makes room for it in the ready list.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn add(&self, item: &Shared<Item>) -> Result<(), Errno> {
        let mut items = self.items.lock();
        items.try_reserve(1).map_err(|_| ENOMEM)?;
        let mut ready = self.ready.lock();
        let missing = items.len() + 1 - ready.len();
        ready.try_reserve(missing).map_err(|_| ENOMEM)?;
        drop(ready);
        items.push(item.clone());
        Ok(())
    }

    /// Removes all items, for good.
    pub fn take_items(&self) -> Vec<Shared<Item>> {
        core::mem::take(&mut *self.items.lock())
    }

    /// Empties the ready list, for good.
    pub fn clear_ready(&self) {
        let ready = core::mem::take(&mut *self.ready.lock());
        drop(ready);
    }

    fn key(&self) -> u64 {
        core::ptr::from_ref(&self.waiting) as u64
    }

    /// Puts an item into the ready list.
    pub fn make_ready(&self, item: &Shared<Item>) {
        let mut ready = self.ready.lock();
        // A waiting thread has the item out of the list for a moment, in which it may be removed for good.
        let is_gone = item.is_gone.load(Ordering::Relaxed);
        if !is_gone && !item.is_ready.swap(true, Ordering::Relaxed) {
            // There is room: `add` made it.
            ready.push_back(item.clone());
        }
    }

    /// Notifies a waiting thread and the watchers that an item is ready.
    pub fn announce(&self) {
        if self.waiting.load(Ordering::SeqCst) != 0 {
            wait::wake_address(self.key(), 1, u32::MAX);
        }
        self.readiness.changed(Events::READABLE);
    }

    /// Removes and returns the first ready item.
    pub fn next(&self) -> Option<Shared<Item>> {
        let mut ready = self.ready.lock();
        let item = ready.pop_front()?;
        item.is_ready.store(false, Ordering::Relaxed);
        Some(item)
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.lock().is_empty()
    }

    /// Sleeps while the ready list is empty, until the deadline at most.
    ///
    /// # Errors
    /// As `wait::sleep` does.
    pub fn sleep(&self, deadline: Option<u64>) -> Result<Option<Woken>, Errno> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let nothing = || Ok(!self.has_ready());
        let woken = wait::sleep(self.key(), u32::MAX, deadline, Interruptible::Yes, nothing);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        woken
    }

    /// Removes an item from both lists. Returns whether it was there.
    pub fn forget(&self, item: &Shared<Item>) -> bool {
        let mut items = self.items.lock();
        let place = items.iter().position(|other| other.is(item));
        let removed = place.map(|place| items.swap_remove(place));
        // Under both locks: an item that only the ready list has would take the room that `add` counts on.
        let mut ready = self.ready.lock();
        item.is_gone.store(true, Ordering::Relaxed);
        let place = ready.iter().position(|other| other.is(item));
        let listed = place.and_then(|place| ready.remove(place));
        drop(ready);
        drop(items);
        drop(listed);
        removed.is_some()
    }

    pub fn find(&self, number: u32, description: &Shared<Description>) -> Option<Shared<Item>> {
        let items = self.items.lock();
        let found = items
            .iter()
            .find(|item| item.number == number && description.is_of(&item.description));
        found.cloned()
    }

    fn item(&self, place: usize) -> Option<Shared<Item>> {
        self.items.lock().get(place).cloned()
    }

    /// Whether `other` can be reached from this epoll, or the chain of epolls is too deep to add one.
    pub fn reaches(&self, other: &Shared<Epoll>, depth: u32) -> bool {
        if depth > DEEPEST || core::ptr::eq(self, &raw const **other) {
            return true;
        }
        (0..)
            .map_while(|place| self.item(place))
            .any(|item| match item.description.upgrade() {
                Some(description) => match &description.object {
                    Object::Epoll(control) => control.0.reaches(other, depth + 1),
                    _ => false,
                },
                None => false,
            })
    }

    /// Copies up to `most` events to user memory. Returns how many.
    ///
    /// # Errors
    /// `EFAULT`, if nothing was copied.
    pub fn collect(&self, to: u64, most: u64) -> Answer {
        let mut found = 0;
        // Items that go back to the end are not looked at twice.
        let count = self.ready.lock().len();
        for _ in 0..count {
            if found == most {
                break;
            }
            let Some(item) = self.next() else { break };
            let Some(description) = item.description.upgrade() else {
                continue;
            };
            let events = description.events() & item.events();
            if events.is_empty() {
                continue;
            }
            let data = item.data();
            let place = to.wrapping_add(EVENT_SIZE * found);
            let told = uaccess::write(place, &events.bits())
                .and_then(|()| uaccess::write(place.wrapping_add(EVENT_DATA), &data));
            if let Err(error) = told {
                self.make_ready(&item);
                return if found == 0 { Err(error) } else { Ok(found) };
            }
            found += 1;
            if item.has(linux::EPOLLONESHOT) {
                item.disarm();
            } else if !item.has(linux::EPOLLET) {
                self.make_ready(&item);
            }
        }
        Ok(found)
    }
}
