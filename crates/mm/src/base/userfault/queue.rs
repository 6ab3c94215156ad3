//! The queue of a userfaultfd: faults and events that wait for the handler.
//!
//! * An entry lies on the stack of the thread that waits. The thread takes the lock once more before it goes on,
//!   so that a waker is done with the entry by then.
//! * A fault enters the queue, then a read section, looks at its page-table entry again, and only then parks. The
//!   handler publishes an entry, fences, and then looks for waiting faults. So one of the two sees the other.
//! * A fault waits until it is woken, whether its message was read or not. A reader sees each message once.
//!
//! *Writes*: the queue, its entries and the count, under the lock.
//!
//! *Models*: loom `fault/userfault.rs`.

use faultless_paging::{PAGE_SIZE, Page, Pages};
use faultless_sync::atomic::{AtomicU32, Local, Ordering, fence};
use faultless_sync::check_park;

use crate::base::list::{Hook, List};
use crate::base::machine::Machine;
use crate::base::userfault::{Userfault, numbers as userfault};

/// A message to the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A fault waits for its page.
    Fault {
        /// The byte address, or that of the page.
        address: u64,
        /// What kind of fault it is ([`userfault`]).
        flags: u64,
        /// The number of the thread that waits, if the userfaultfd has that feature.
        thread: u32,
    },
    /// The process was forked. The child's memory is registered with a userfaultfd that the port names.
    Fork {
        /// The port's name for what the reader gets.
        child: u64,
    },
    /// Registered memory was moved, in bytes.
    Remap {
        /// From here.
        from: u64,
        /// To here.
        to: u64,
        /// So many bytes.
        length: u64,
    },
    /// Pages of registered memory are about to be discarded, in bytes.
    Remove {
        /// The first byte.
        start: u64,
        /// The end.
        end: u64,
    },
    /// Registered memory was unmapped, in bytes.
    Unmap {
        /// The first byte.
        start: u64,
        /// The end.
        end: u64,
    },
}

/// The page of an event: no request wakes it.
const EVENT: u64 = u64::MAX - 1;

/// States of an entry.
const WAITING: u32 = 0;
const WOKEN: u32 = 1;
/// The handler has gone.
const GONE: u32 = 2;

/// An entry of a queue.
#[repr(C)]
pub(crate) struct Waiter {
    hook: Hook,
    word: AtomicU32,
    page: u64,
    message: Message,
    /// Whether it is in the queue, and whether its message was read.
    place: Local,
}

const NOWHERE: u64 = 0;
const UNREAD: u64 = 1;
const READ: u64 = 2;
const TOLD: u64 = 3;

impl Waiter {
    pub(crate) fn new(message: Message, page: u64) -> Self {
        Self {
            hook: Hook::new(),
            word: AtomicU32::new(WAITING),
            page,
            message,
            place: Local::new(NOWHERE),
        }
    }

    /// Returns the entry to which a hook belongs.
    ///
    /// # Safety
    /// The hook is in a queue, of which the lock is held during `'a`.
    unsafe fn of<'a>(hook: &Hook) -> &'a Waiter {
        // SAFETY: it is the first field, and was exposed with the whole.
        unsafe { &*core::ptr::with_exposed_provenance(core::ptr::from_ref(hook).addr()) }
    }
}

/// The entries of a queue, each in the order in which it came.
pub(crate) struct Queue {
    unread: List,
    events: List,
    read: List,
    is_closed: bool,
}

impl Queue {
    pub(crate) fn new() -> Self {
        Self {
            unread: List::new(),
            events: List::new(),
            read: List::new(),
            is_closed: false,
        }
    }

    /// Puts an entry at the end of one of the lists.
    fn push(&mut self, waiter: &Waiter, place: u64) {
        let _ = core::ptr::from_ref(waiter).expose_provenance();
        let list = self.list(place);
        // SAFETY: the thread that waits keeps the entry until it is out.
        unsafe { list.push(&waiter.hook) };
        waiter.place.set(place);
    }

    /// Takes an entry out, if it is in. Returns where it was.
    fn take(&mut self, waiter: &Waiter) -> u64 {
        let place = waiter.place.get();
        if place != NOWHERE {
            // SAFETY: as above.
            unsafe { self.list(place).remove(&waiter.hook) };
            waiter.place.set(NOWHERE);
        }
        place
    }

    fn list(&mut self, place: u64) -> &mut List {
        match place {
            UNREAD => &mut self.unread,
            TOLD => &mut self.events,
            _ => &mut self.read,
        }
    }

    /// Returns the first entry of all.
    ///
    /// # Safety
    /// The lock is held.
    unsafe fn first<'a>(&self) -> Option<&'a Hook> {
        // SAFETY: passed on to the caller.
        let [unread, read, events] =
            [&self.unread, &self.read, &self.events].map(|list| unsafe { list.first() });
        unread.or(read).or(events)
    }
}

impl<M: Machine> Userfault<M> {
    /// Puts a fault into the queue. Returns whether it is: nothing waits for a handler that has gone. The caller
    /// looks again at what it would wait for, in a read section: entering that is a full barrier.
    pub(crate) fn enter(&self, waiter: &Waiter) -> bool {
        let inner = self.inner();
        let mut queue = inner.queue.lock(self.machine());
        if queue.is_closed {
            return false;
        }
        let place = match waiter.page {
            EVENT => TOLD,
            _ => UNREAD,
        };
        queue.push(waiter, place);
        inner.waiting.fetch_add(1, Ordering::Relaxed);
        inner.unread.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// Waits until a fault in the queue is woken. Returns whether it was, and is not interrupted
    /// ([`Machine::park_for_handler`]).
    pub(crate) fn wait(&self, waiter: &Waiter, by_kernel: bool) -> bool {
        self.tell();
        while waiter.word.load(Ordering::Acquire) == WAITING {
            check_park();
            if !self
                .machine()
                .park_for_handler(&waiter.word, WAITING, by_kernel)
            {
                return false;
            }
        }
        true
    }

    /// Takes a fault out of the queue, if no waker has, and waits until that waker is done with it.
    pub(crate) fn leave(&self, waiter: &Waiter) {
        let inner = self.inner();
        let mut queue = inner.queue.lock(self.machine());
        self.take(&mut queue, waiter);
    }

    /// Takes an entry out of the queue, if it is in.
    fn take(&self, queue: &mut Queue, waiter: &Waiter) {
        let inner = self.inner();
        let place = queue.take(waiter);
        if place != NOWHERE {
            inner.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        if matches!(place, UNREAD | TOLD) {
            inner.unread.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Notifies the port that a message can be read.
    fn tell(&self) {
        let queue = self.inner().queue.lock(self.machine());
        let tag = self.inner().tag.load(Ordering::Acquire);
        if !queue.is_closed && tag != 0 {
            self.machine().has_message(tag);
        }
    }

    /// Whether a message can be read. Takes no lock, so that a port may ask under a lock of its own.
    pub fn is_readable(&self) -> bool {
        self.inner().unread.load(Ordering::SeqCst) != 0
    }

    /// Returns the message of the fault that has waited longest, once, or else of the first event, which then waits no
    /// longer.
    pub fn read(&self) -> Option<Message> {
        let mut queue = self.inner().queue.lock(self.machine());
        // SAFETY: under the lock.
        if let Some(hook) = unsafe { queue.unread.first() } {
            // SAFETY: as above.
            let waiter = unsafe { Waiter::of(hook) };
            queue.take(waiter);
            queue.push(waiter, READ);
            self.inner().unread.fetch_sub(1, Ordering::SeqCst);
            return Some(waiter.message);
        }
        // SAFETY: as above.
        let waiter = unsafe { Waiter::of(queue.events.first()?) };
        let message = waiter.message;
        self.release(&mut queue, waiter, WOKEN);
        Some(message)
    }

    /// Reports an event, and waits until it is read. Returns whether it was: not if the handler has gone, or the
    /// thread was killed.
    pub fn report(&self, message: Message) -> bool {
        let waiter = Waiter::new(message, EVENT);
        if !self.enter(&waiter) {
            return false;
        }
        let is_read = self.wait(&waiter, true);
        self.leave(&waiter);
        is_read && waiter.word.load(Ordering::Relaxed) == WOKEN
    }

    /// Begins a change that is reported: until [`Userfault::end_change`], requests of the handler fail.
    pub(crate) fn begin_change(&self) {
        self.inner().changing.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn end_change(&self) {
        self.inner().changing.fetch_sub(1, Ordering::SeqCst);
    }

    /// Takes an entry out, and wakes its thread.
    fn release(&self, queue: &mut Queue, waiter: &Waiter, state: u32) {
        self.take(queue, waiter);
        waiter.word.store(state, Ordering::Release);
        self.machine().wake(&waiter.word, 1);
    }

    /// Wakes the faults that wait for one of `pages`. What they wait for was published before.
    pub fn wake(&self, pages: Pages) {
        let inner = self.inner();
        // Pairs with the barrier of the section in which a fault in the queue looks at its entry. Whatever publishes
        // today has a barrier of its own behind its claim.
        fence(Ordering::SeqCst);
        if inner.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut queue = inner.queue.lock(self.machine());
        for place in [READ, UNREAD] {
            // SAFETY: the lock is held.
            let mut next = unsafe { queue.list(place).first() };
            while let Some(hook) = next {
                // SAFETY: as above; read before the entry may be taken out.
                next = unsafe { queue.list(place).next(hook) };
                // SAFETY: as above.
                let waiter = unsafe { Waiter::of(hook) };
                if pages.contains(Page(waiter.page)) {
                    self.release(&mut queue, waiter, WOKEN);
                }
            }
        }
    }

    /// Whether a change of mappings waits for its event to be read.
    pub fn is_changing(&self) -> bool {
        self.inner().changing.load(Ordering::SeqCst) != 0
    }

    /// Returns the address for the message of a fault.
    pub(crate) fn address_of(&self, address: u64) -> u64 {
        match self.has(userfault::EXACT_ADDRESS) {
            true => address,
            false => address & !(PAGE_SIZE - 1),
        }
    }

    /// Lets no fault wait from now on, and wakes all that do. When it returns, [`Machine::has_message`] is not
    /// called any more. [`crate::AddressSpace::close_userfault`] does this, and ends the registrations.
    pub fn close(&self) {
        self.set_features(userfault::CLOSED);
        self.inner().queue.lock(self.machine()).is_closed = true;
        let mut queue = self.inner().queue.lock(self.machine());
        // SAFETY: under the lock.
        while let Some(hook) = unsafe { queue.first() } {
            // SAFETY: as above.
            let waiter = unsafe { Waiter::of(hook) };
            self.release(&mut queue, waiter, GONE);
        }
    }
}
