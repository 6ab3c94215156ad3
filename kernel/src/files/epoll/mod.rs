//! Epoll: a list of descriptions to watch, and those of them that have something to tell.
//!
//! An *item* is one watched description. It is in its source's list of watchers, and when the
//! source changes it enters its epoll's ready list, unless it is there already. Waiting takes items
//! from there and asks the description what is true now; a level-triggered item that had something
//! to tell goes back to the end.
//!
//! References: epoll → items (strong), source → items (strong), item → epoll and description (weak).
//! A description that is closed for good takes its items out of both lists (`Watched::close`), an
//! epoll likewise.
//!
//! Locks: `items` is taken before anything else here; `ready` may be taken under a source's list.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use linux_raw_sys::general as linux;

use super::description::{Description, Object};
use super::device::Device;
use super::readiness::{Events, Readiness, Watcher};
use super::turn::Turn;
use crate::arch::{time, uaccess};
use crate::errno::{Answer, EEXIST, EINTR, EINVAL, ELOOP, ENOENT, ENOMEM, EPERM, Errno};
use crate::sched;
use crate::sched::wait::{self, Interruptible, Woken};
use crate::shared::{Shared, Weak};
use crate::sync::SpinLock;

/// How deep epolls may watch epolls, as on Linux.
const DEEPEST: u32 = 5;

/// The instance that a descriptor leads to.
pub struct Control(Shared<Epoll>);

pub struct Epoll {
    items: SpinLock<Vec<Shared<Item>>>,
    /// Has room for all items.
    ready: SpinLock<VecDeque<Shared<Item>>>,
    /// Threads that sleep in `wait`, on this word's address.
    waiting: AtomicU32,
    readiness: Readiness,
}

/// A watched description.
pub struct Item {
    epoll: Weak<Epoll>,
    description: Weak<Description>,
    /// The descriptor that it was added by, which is its name in calls.
    number: u32,
    /// What is wanted, with the flags `EPOLLET` and `EPOLLONESHOT`.
    wanted: AtomicU32,
    data: AtomicU64,
    /// It is in the ready list. Under that list's lock.
    is_ready: AtomicBool,
    /// It was taken out for good. Under the ready list's lock.
    is_gone: AtomicBool,
}

/// The items that watch a description.
pub struct Watched(SpinLock<Vec<Weak<Item>>>);

/// What a caller wants of an item.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub events: u32,
    pub data: u64,
}

/// In an item's wanted events: it has fired once, and was not armed since. No event has this bit.
pub const DISARMED: u32 = 1 << 27;

impl Item {
    fn events(&self) -> Events {
        let wanted = self.wanted.load(Ordering::Relaxed);
        if wanted & DISARMED != 0 {
            return Events::empty();
        }
        Events::from_bits_truncate(wanted) | Events::ALWAYS
    }

    fn has(&self, flag: u32) -> bool {
        self.wanted.load(Ordering::Relaxed) & flag != 0
    }
}

/// An item's source has changed.
pub fn tell(item: &Shared<Item>, events: Events) {
    if item.events().intersects(events)
        && let Some(epoll) = item.epoll.upgrade()
    {
        epoll.make_ready(item);
        epoll.announce();
    }
}

impl Watched {
    pub const fn new() -> Self {
        Self(SpinLock::new(Vec::new()))
    }

    fn add(&self, item: &Shared<Item>) -> Result<(), Errno> {
        let mut items = self.0.lock();
        items.try_reserve(1).map_err(|_| ENOMEM)?;
        items.push(item.downgrade());
        Ok(())
    }

    fn remove(&self, item: &Shared<Item>) {
        let mut items = self.0.lock();
        let place = items.iter().position(|other| item.is_of(other));
        let old = place.map(|place| items.swap_remove(place));
        drop(items);
        drop(old);
    }

    /// The description that these watch is closed for good.
    pub fn close(&self, source: Option<&Readiness>) {
        let items = core::mem::take(&mut *self.0.lock());
        for item in items.iter().filter_map(Weak::upgrade) {
            if let Some(source) = source {
                source.unwatch(&Watcher::Item(item.clone()));
            }
            if let Some(epoll) = item.epoll.upgrade() {
                epoll.forget(&item);
            }
        }
    }
}

impl Epoll {
    fn key(&self) -> u64 {
        core::ptr::from_ref(&self.waiting) as u64
    }

    /// Puts an item into the ready list.
    fn make_ready(&self, item: &Shared<Item>) {
        let mut ready = self.ready.lock();
        // Whoever waits has it out of the list for a moment, when it may be taken out for good.
        let is_gone = item.is_gone.load(Ordering::Relaxed);
        if !is_gone && !item.is_ready.swap(true, Ordering::Relaxed) {
            // There is room: it was made when the item was added.
            ready.push_back(item.clone());
        }
    }

    /// Tells those who wait for an item to become ready.
    fn announce(&self) {
        if self.waiting.load(Ordering::SeqCst) != 0 {
            wait::wake_address(self.key(), 1, u32::MAX);
        }
        self.readiness.changed(Events::READABLE);
    }

    /// Takes the first ready item.
    fn next(&self) -> Option<Shared<Item>> {
        let mut ready = self.ready.lock();
        let item = ready.pop_front()?;
        item.is_ready.store(false, Ordering::Relaxed);
        Some(item)
    }

    fn has_ready(&self) -> bool {
        !self.ready.lock().is_empty()
    }

    /// Takes an item out of both lists; whether it was there.
    fn forget(&self, item: &Shared<Item>) -> bool {
        let removed = {
            let mut items = self.items.lock();
            let place = items.iter().position(|other| other.is(item));
            place.map(|place| items.swap_remove(place))
        };
        let mut ready = self.ready.lock();
        item.is_gone.store(true, Ordering::Relaxed);
        let place = ready.iter().position(|other| other.is(item));
        let listed = place.and_then(|place| ready.remove(place));
        drop(ready);
        drop(listed);
        removed.is_some()
    }

    fn find(&self, number: u32, description: &Shared<Description>) -> Option<Shared<Item>> {
        let items = self.items.lock();
        let found = items
            .iter()
            .find(|item| item.number == number && description.is_of(&item.description));
        found.cloned()
    }

    fn item(&self, place: usize) -> Option<Shared<Item>> {
        self.items.lock().get(place).cloned()
    }

    /// Whether an epoll is reached from this one, or so many others are that nobody may add one.
    fn reaches(&self, other: &Shared<Epoll>, depth: u32) -> bool {
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

    /// Gives user memory up to `most` events; how many.
    fn collect(&self, to: u64, most: u64) -> Answer {
        let mut found = 0;
        // Those that go back to the end are not looked at twice.
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
            let data = item.data.load(Ordering::Relaxed);
            let told = [events.bits(), data as u32, (data >> 32) as u32];
            if let Err(error) = uaccess::write(to.wrapping_add(12 * found), &told) {
                self.make_ready(&item);
                return if found == 0 { Err(error) } else { Ok(found) };
            }
            found += 1;
            if item.has(linux::EPOLLONESHOT) {
                item.wanted.fetch_or(DISARMED, Ordering::Relaxed);
            } else if !item.has(linux::EPOLLET) {
                self.make_ready(&item);
            }
        }
        Ok(found)
    }
}

impl Control {
    /// A new instance that watches nothing.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self(Shared::new(Epoll {
            items: SpinLock::new(Vec::new()),
            ready: SpinLock::new(VecDeque::new()),
            waiting: AtomicU32::new(0),
            readiness: Readiness::new(),
        })?))
    }

    /// Watches a description.
    ///
    /// # Errors
    /// `EPERM` for what is always ready, `EEXIST`, `ELOOP`, `ENOMEM`.
    pub fn add(
        &self,
        number: u32,
        description: &Shared<Description>,
        wanted: Wanted,
    ) -> Result<(), Errno> {
        // One at a time, or two could close a circle between them.
        static ADDING: Turn = Turn::new();
        let _adding = ADDING.take()?;
        match &description.object {
            Object::File(_) | Object::Directory(_) | Object::Text(..) => return Err(EPERM),
            Object::Device(device, _) if !matches!(device, Device::Terminal(_)) => {
                return Err(EPERM);
            }
            Object::Epoll(other) if other.0.is(&self.0) => return Err(EINVAL),
            Object::Epoll(other) if other.0.reaches(&self.0, 1) => return Err(ELOOP),
            _ => {}
        }
        if self.0.find(number, description).is_some() {
            return Err(EEXIST);
        }
        let item = Shared::new(Item {
            epoll: self.0.downgrade(),
            description: description.downgrade(),
            number,
            wanted: AtomicU32::new(wanted.events),
            data: AtomicU64::new(wanted.data),
            is_ready: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
        })?;
        {
            let mut items = self.0.items.lock();
            items.try_reserve(1).map_err(|_| ENOMEM)?;
            let mut ready = self.0.ready.lock();
            let missing = items.len() + 1 - ready.len();
            ready.try_reserve(missing).map_err(|_| ENOMEM)?;
            drop(ready);
            items.push(item.clone());
        }
        if let Err(error) = self.watch(&item, description) {
            self.remove_item(&item, description);
            return Err(error);
        }
        self.look(&item, description);
        Ok(())
    }

    fn watch(&self, item: &Shared<Item>, description: &Description) -> Result<(), Errno> {
        description.watched.add(item)?;
        match description.readiness() {
            Some(source) => source.watch(Watcher::Item(item.clone()), item.events()),
            None => Ok(()),
        }
    }

    /// Makes an item ready if it has something to tell now.
    fn look(&self, item: &Shared<Item>, description: &Description) {
        if description.events().intersects(item.events()) {
            self.0.make_ready(item);
            self.0.announce();
        }
    }

    /// Changes what is wanted of a description.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn change(
        &self,
        number: u32,
        description: &Shared<Description>,
        wanted: Wanted,
    ) -> Result<(), Errno> {
        let item = self.0.find(number, description).ok_or(ENOENT)?;
        item.data.store(wanted.data, Ordering::Relaxed);
        item.wanted.store(wanted.events, Ordering::Relaxed);
        if let Some(source) = description.readiness() {
            source.change(&Watcher::Item(item.clone()), item.events());
        }
        self.look(&item, description);
        Ok(())
    }

    /// Watches a description no more.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn remove(&self, number: u32, description: &Shared<Description>) -> Result<(), Errno> {
        let item = self.0.find(number, description).ok_or(ENOENT)?;
        self.remove_item(&item, description);
        Ok(())
    }

    fn remove_item(&self, item: &Shared<Item>, description: &Description) {
        if let Some(source) = description.readiness() {
            source.unwatch(&Watcher::Item(item.clone()));
        }
        description.watched.remove(item);
        self.0.forget(item);
    }

    /// Waits until there is something to tell, and gives user memory up to `most` events.
    ///
    /// # Errors
    /// `EFAULT`; `EINTR` when a signal comes first.
    pub fn wait(&self, to: u64, most: u64, deadline: Option<u64>) -> Answer {
        let epoll = &*self.0;
        loop {
            let found = epoll.collect(to, most)?;
            if found != 0 {
                if epoll.has_ready() {
                    epoll.announce();
                }
                return Ok(found);
            }
            if deadline.is_some_and(|deadline| time::now() >= deadline) {
                return Ok(0);
            }
            epoll.waiting.fetch_add(1, Ordering::SeqCst);
            let nothing = || Ok(!epoll.has_ready());
            let key = epoll.key();
            let woken = wait::sleep(key, u32::MAX, deadline, Interruptible::Yes, nothing);
            epoll.waiting.fetch_sub(1, Ordering::SeqCst);
            if woken? == Some(Woken::Signal) && sched::current().is_interrupted() {
                return Err(EINTR);
            }
        }
    }

    /// Readable while an item has something to tell.
    pub fn events(&self) -> Events {
        while let Some(item) = self.0.next() {
            let description = item.description.upgrade();
            if description.is_some_and(|open| open.events().intersects(item.events())) {
                self.0.make_ready(&item);
                return Events::READABLE;
            }
        }
        Events::empty()
    }

    pub fn readiness(&self) -> &Readiness {
        &self.0.readiness
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let items = core::mem::take(&mut *self.0.items.lock());
        for item in items {
            if let Some(description) = item.description.upgrade() {
                self.remove_item(&item, &description);
            }
        }
        let ready = core::mem::take(&mut *self.0.ready.lock());
        drop(ready);
    }
}
