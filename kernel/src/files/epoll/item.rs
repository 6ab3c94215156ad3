//! Items: watched descriptions, as seen from the epoll and from the description.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::lists::Epoll;
use crate::errno::{ENOMEM, Errno};
use crate::files::description::Description;
use crate::files::readiness::{Events, Readiness, Watcher};
use crate::shared::{Shared, Weak};
use crate::sync::SpinLock;

/// A watched description.
pub struct Item {
    pub epoll: Weak<Epoll>,
    pub description: Weak<Description>,
    /// The descriptor by which it was added: its name in calls.
    pub number: u32,
    /// The wanted events, with the flags `EPOLLET` and `EPOLLONESHOT`.
    wanted: AtomicU32,
    data: AtomicU64,
    /// Whether it is in the ready list. Under that list's lock.
    pub is_ready: AtomicBool,
    /// Whether it was removed for good. Under the ready list's lock.
    pub is_gone: AtomicBool,
}

/// The items that watch a description.
pub struct Watched(SpinLock<Vec<Weak<Item>>>);

/// The events that a caller wants of an item.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub events: u32,
    pub data: u64,
}

/// In an item's wanted events: it has fired once, and was not re-armed since. No event has this bit.
pub const DISARMED: u32 = 1 << 27;

impl Item {
    pub fn new(
        epoll: &Shared<Epoll>,
        number: u32,
        description: &Shared<Description>,
        wanted: Wanted,
    ) -> Self {
        Self {
            epoll: epoll.downgrade(),
            description: description.downgrade(),
            number,
            wanted: AtomicU32::new(wanted.events),
            data: AtomicU64::new(wanted.data),
            is_ready: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
        }
    }

    pub fn change(&self, wanted: Wanted) {
        self.data.store(wanted.data, Ordering::Relaxed);
        self.wanted.store(wanted.events, Ordering::Relaxed);
    }

    /// Keeps an item that has fired from firing again until it is changed.
    pub fn disarm(&self) {
        self.wanted.fetch_or(DISARMED, Ordering::Relaxed);
    }

    /// The data that `epoll_wait` returns with the events.
    pub fn data(&self) -> u64 {
        self.data.load(Ordering::Relaxed)
    }

    /// The events to report.
    pub fn events(&self) -> Events {
        let wanted = self.wanted.load(Ordering::Relaxed);
        if wanted & DISARMED != 0 {
            return Events::empty();
        }
        Events::from_bits_truncate(wanted) | Events::ALWAYS
    }

    /// Whether a flag is set in the wanted events.
    pub fn has(&self, flag: u32) -> bool {
        self.wanted.load(Ordering::Relaxed) & flag != 0
    }
}

/// Makes an item ready after a change of its source.
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

    /// # Errors
    /// `ENOMEM`.
    pub fn add(&self, item: &Shared<Item>) -> Result<(), Errno> {
        let mut items = self.0.lock();
        items.try_reserve(1).map_err(|_| ENOMEM)?;
        items.push(item.downgrade());
        Ok(())
    }

    pub fn remove(&self, item: &Shared<Item>) {
        let mut items = self.0.lock();
        let place = items.iter().position(|other| item.is_of(other));
        let old = place.map(|place| items.swap_remove(place));
        drop(items);
        drop(old);
    }

    /// Removes the items of a description that is closed for good.
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
