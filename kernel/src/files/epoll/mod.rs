//! Epoll: a list of watched descriptions, and of those that have events.
//!
//! An *item* (`item`) is one watched description. It is in its source's list of watchers. When the source
//! changes, the item enters its epoll's ready list, unless it is there already (`lists`). A wait takes items
//! from there and reads the present state of each description. A level-triggered item with events goes back
//! to the end.
//!
//! References: epoll → items (strong), source → items (strong), item → epoll and description (weak). A
//! description that is closed for good removes its items from both lists (`Watched::close`), and so does an
//! epoll.
//!
//! Locks: `items` is taken before anything else here; `ready` may be taken under a source's list.

mod item;
mod lists;

use super::description::{Description, Object};
use super::device::Device;
use super::readiness::{Events, Readiness, Watcher};
use super::turn::Turn;
use crate::arch::time;
use crate::errno::{Answer, EEXIST, EINTR, EINVAL, ELOOP, ENOENT, EPERM, Errno};
use crate::sched;
use crate::sched::wait::Woken;
use crate::shared::Shared;
pub use item::{DISARMED, Item, Wanted, Watched, tell};
use lists::Epoll;

/// Bytes of an event in user memory, and where its data begins.
pub const EVENT_SIZE: u64 = size_of::<linux_raw_sys::general::epoll_event>() as u64;
pub const EVENT_DATA: u64 = EVENT_SIZE - 8;

/// The instance of a descriptor.
pub struct Control(Shared<Epoll>);

impl Control {
    /// Makes an instance that watches nothing.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self(Shared::new(Epoll::new())?))
    }

    /// Watches a description.
    ///
    /// # Errors
    /// `EPERM` for an object that is always ready, `EEXIST`, `ELOOP`, `ENOMEM`.
    pub fn add(
        &self,
        number: u32,
        description: &Shared<Description>,
        wanted: Wanted,
    ) -> Result<(), Errno> {
        // Serialised, because two concurrent calls could close a cycle between them.
        static ADDING: Turn = Turn::new();
        let _adding = ADDING.take()?;
        match &description.object {
            Object::File(_)
            | Object::Directory(_)
            | Object::Text(..)
            | Object::Listing(..)
            | Object::PageIdle(_)
            | Object::Memory(..) => {
                return Err(EPERM);
            }
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
        let item = Shared::new(Item::new(&self.0, number, description, wanted))?;
        self.0.add(&item)?;
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

    /// Makes an item ready if it has events now.
    fn look(&self, item: &Shared<Item>, description: &Description) {
        if description.events().intersects(item.events()) {
            self.0.make_ready(item);
            self.0.announce();
        }
    }

    /// Changes the events wanted of a description.
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
        item.change(wanted);
        if let Some(source) = description.readiness() {
            source.change(&Watcher::Item(item.clone()), item.events());
        }
        self.look(&item, description);
        Ok(())
    }

    /// Stops watching a description.
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

    /// Waits for events, and copies up to `most` of them to user memory.
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
            if epoll.sleep(deadline)? == Some(Woken::Signal) && sched::current().is_interrupted() {
                return Err(EINTR);
            }
        }
    }

    /// Readable while an item has events.
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
        self.0.readiness()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        for item in self.0.take_items() {
            if let Some(description) = item.description.upgrade() {
                self.remove_item(&item, &description);
            }
        }
        self.0.clear_ready();
    }
}
