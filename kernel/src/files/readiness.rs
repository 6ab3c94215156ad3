//! Notifies watchers when something becomes readable or writable: the one mechanism behind `poll`, `select`
//! and epoll.
//!
//! A source (a pipe, an event counter, standard input, an epoll instance) has a [`Readiness`], a list of
//! watchers. A watcher first enters the list and then looks at the source's state. The source first changes
//! its state and then looks at the list. Both have a full barrier in between, so one of the two sees the
//! other and no change is missed.
//!
//! Lock order: a source's list → an epoll's ready list → that epoll's own list of watchers, and so on through
//! epolls that watch epolls. These form no cycle (`epoll::Control::add`).

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use bitflags::bitflags;

use super::epoll::{self, Item};
use crate::errno::{ENOMEM, Errno};
use crate::sched::wait;
use crate::shared::Shared;
use crate::sync::SpinLock;

bitflags! {
    /// Events of `poll` and epoll, which have the same numbers.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Events: u32 {
        const IN = 0x1;
        const PRIORITY = 0x2;
        const OUT = 0x4;
        const ERROR = 0x8;
        const HANG_UP = 0x10;
        const INVALID = 0x20;
        const IN_NORMAL = 0x40;
        const OUT_NORMAL = 0x100;
        const READ_HANG_UP = 0x2000;

        const READABLE = Self::IN.bits() | Self::IN_NORMAL.bits();
        const WRITABLE = Self::OUT.bits() | Self::OUT_NORMAL.bits();
        /// Reported even if not asked for.
        const ALWAYS = Self::ERROR.bits() | Self::HANG_UP.bits();
    }
}

/// A thread in `poll`: it sleeps on the address of this object.
pub struct Poller {
    told: AtomicU32,
}

impl Poller {
    pub const fn new() -> Self {
        Self {
            told: AtomicU32::new(0),
        }
    }

    /// The key that it sleeps on.
    pub fn key(&self) -> u64 {
        core::ptr::from_ref(self) as u64
    }

    /// Whether it was notified since [`Poller::reset`].
    pub fn is_told(&self) -> bool {
        self.told.load(Ordering::SeqCst) != 0
    }

    /// Clears the notification. The caller looks at its sources afterwards.
    pub fn reset(&self) {
        self.told.store(0, Ordering::SeqCst);
    }

    fn tell(&self) {
        self.told.store(1, Ordering::SeqCst);
        wait::wake_address(self.key(), u32::MAX, u32::MAX);
    }
}

/// A receiver of notifications.
#[derive(Clone)]
pub enum Watcher {
    Poller(Shared<Poller>),
    Item(Shared<Item>),
}

impl Watcher {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Poller(one), Self::Poller(other)) => one.is(other),
            (Self::Item(one), Self::Item(other)) => one.is(other),
            _ => false,
        }
    }

    fn tell(&self, events: Events) {
        match self {
            Self::Poller(poller) => poller.tell(),
            Self::Item(item) => epoll::tell(item, events),
        }
    }
}

/// A source's watchers.
pub struct Readiness {
    /// Whether there are any. Written under the list's lock.
    watched: AtomicBool,
    watchers: SpinLock<Vec<(Watcher, Events)>>,
}

impl Readiness {
    pub const fn new() -> Self {
        Self {
            watched: AtomicBool::new(false),
            watchers: SpinLock::new(Vec::new()),
        }
    }

    /// Adds a watcher. The caller looks at the source's state afterwards.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn watch(&self, watcher: Watcher, events: Events) -> Result<(), Errno> {
        let mut watchers = self.watchers.lock();
        watchers.try_reserve(1).map_err(|_| ENOMEM)?;
        watchers.push((watcher, events | Events::ALWAYS));
        self.watched.store(true, Ordering::Relaxed);
        drop(watchers);
        // Pairs with the fence in `changed`.
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Changes the events that a watcher wants.
    pub fn change(&self, watcher: &Watcher, events: Events) {
        let mut watchers = self.watchers.lock();
        if let Some(watch) = watchers.iter_mut().find(|(other, _)| other.is(watcher)) {
            watch.1 = events | Events::ALWAYS;
        }
        drop(watchers);
        fence(Ordering::SeqCst);
    }

    /// Removes a watcher.
    pub fn unwatch(&self, watcher: &Watcher) {
        let mut watchers = self.watchers.lock();
        let place = watchers.iter().position(|(other, _)| other.is(watcher));
        let old = place.map(|place| watchers.swap_remove(place));
        let rest = if watchers.is_empty() {
            self.watched.store(false, Ordering::Relaxed);
            core::mem::take(&mut *watchers)
        } else {
            Vec::new()
        };
        drop(watchers);
        drop((old, rest));
    }

    /// Notifies the watchers of a change of the source's state.
    #[inline]
    pub fn changed(&self, events: Events) {
        // Pairs with the fence in `watch`: the state changed before, the list is read after.
        fence(Ordering::SeqCst);
        if self.watched.load(Ordering::Relaxed) {
            self.tell(events);
        }
    }

    #[cold]
    fn tell(&self, events: Events) {
        for (watcher, wanted) in self.watchers.lock().iter() {
            if wanted.intersects(events) {
                watcher.tell(events);
            }
        }
    }
}
