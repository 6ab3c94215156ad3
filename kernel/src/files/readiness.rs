//! Who wants to know when something becomes readable or writable: the one mechanism behind `poll`,
//! `select` and epoll.
//!
//! A source (a pipe, an event counter, standard input, an epoll instance) has a [`Readiness`], a
//! list of watchers. The watcher first enters the list and then looks at the source's state; the
//! source first changes its state and then looks at the list. Both put a full barrier between, so
//! one of the two sees the other and no change is missed.
//!
//! Lock order: a source's list → an epoll's ready list → that epoll's own list of watchers, and so
//! on through epolls that watch epolls, which form no circle (`epoll::Control::add`).

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use bitflags::bitflags;

use super::epoll::{self, Item};
use crate::errno::{ENOMEM, Errno};
use crate::sched::wait;
use crate::shared::Shared;
use crate::sync::SpinLock;

bitflags! {
    /// What `poll` and epoll tell; the numbers of both are the same.
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
        /// Told even to those who did not ask.
        const ALWAYS = Self::ERROR.bits() | Self::HANG_UP.bits();
    }
}

/// A thread that polls: it sleeps on its word.
pub struct Poller {
    told: AtomicU32,
}

impl Poller {
    pub const fn new() -> Self {
        Self {
            told: AtomicU32::new(0),
        }
    }

    /// What it sleeps on.
    pub fn key(&self) -> u64 {
        core::ptr::from_ref(self) as u64
    }

    /// Whether it has been told anything since [`Poller::reset`].
    pub fn is_told(&self) -> bool {
        self.told.load(Ordering::SeqCst) != 0
    }

    /// Forgets what it was told; it looks at its sources afterwards.
    pub fn reset(&self) {
        self.told.store(0, Ordering::SeqCst);
    }

    fn tell(&self) {
        self.told.store(1, Ordering::SeqCst);
        wait::wake_address(self.key(), u32::MAX, u32::MAX);
    }
}

/// Who is told.
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
    /// There are any. Written under the list's lock.
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

    /// Adds a watcher. Afterwards it looks at the source's state.
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

    /// Changes what a watcher wants to know.
    pub fn change(&self, watcher: &Watcher, events: Events) {
        let mut watchers = self.watchers.lock();
        if let Some(watch) = watchers.iter_mut().find(|(other, _)| other.is(watcher)) {
            watch.1 = events | Events::ALWAYS;
        }
        drop(watchers);
        fence(Ordering::SeqCst);
    }

    /// Takes a watcher out.
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

    /// The source's state has changed.
    #[inline]
    pub fn changed(&self, events: Events) {
        // Pairs with the fence in `watch`: the change before, the look at the list after.
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
