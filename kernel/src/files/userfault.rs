//! Userfaultfds: a descriptor from which a program reads the faults of registered memory, and by which it
//! resolves them.
//!
//! The core has the queue of faults (`faultless_mm::Userfault`). What is here connects it with descriptors: it
//! sleeps in `read`, and tells `poll`. The state that the core's notification reaches outlives every such
//! notification, because the end of the userfaultfd stops them first.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use linux_raw_sys::general as linux;

use super::readiness::{Events, Readiness};
use crate::arch::uaccess;
use crate::errno::{Answer, EAGAIN, EFAULT, EINVAL, EPERM, ESRCH, Errno, RESTART};
use crate::memory::machine::memory;
use crate::memory::{Userfault, userfault};
use crate::process::{self, UserSpace};
use crate::sched;
use crate::sched::wait::{self, Interruptible, Woken};
use crate::shared::{Shared, Weak};
use faultless_mm::Message;

/// Bytes of a message.
const MESSAGE: u64 = 32;

/// The features that are there (`UFFD_FEATURE_*`).
pub const FEATURES: u64 = (linux::UFFD_FEATURE_PAGEFAULT_FLAG_WP
    | linux::UFFD_FEATURE_SIGBUS
    | linux::UFFD_FEATURE_THREAD_ID
    | linux::UFFD_FEATURE_EXACT_ADDRESS
    | linux::UFFD_FEATURE_WP_UNPOPULATED
    | linux::UFFD_FEATURE_POISON
    | linux::UFFD_FEATURE_WP_ASYNC) as u64;
/// Whether the features were agreed on.
const INITIALISED: u64 = 1 << 63;

/// What a notification of the core reaches.
struct Arrivals {
    /// Threads that sleep in `read`, on this word's address.
    waiting: AtomicU32,
    readiness: Readiness,
}

/// Reports that a message can be read from the userfaultfd with this tag.
pub fn has_message(tag: u64) {
    // SAFETY: The core calls this only until the userfaultfd ends, which holds its state.
    let arrivals = unsafe { &*core::ptr::with_exposed_provenance::<Arrivals>(tag as usize) };
    fence(Ordering::SeqCst);
    if arrivals.waiting.load(Ordering::Relaxed) != 0 {
        wait::wake_address(arrivals.key(), u32::MAX, u32::MAX);
    }
    arrivals.readiness.changed(Events::READABLE);
}

impl Arrivals {
    fn key(&self) -> u64 {
        core::ptr::from_ref(&self.waiting) as u64
    }
}

/// A userfaultfd.
pub struct Faults {
    /// Dropped after the core's part.
    pub core: Userfault,
    arrivals: Shared<Arrivals>,
    /// The memory of the process that made it.
    space: Weak<UserSpace>,
    features: AtomicU64,
}

impl Faults {
    /// Makes one for the memory of the calling process. `user_only`: accesses by the kernel do not wait for it.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(user_only: bool) -> Result<Self, Errno> {
        let space = process::current().space().ok_or(ESRCH)?;
        let arrivals = Shared::new(Arrivals {
            waiting: AtomicU32::new(0),
            readiness: Readiness::new(),
        })?;
        let tag = core::ptr::from_ref::<Arrivals>(&arrivals).expose_provenance() as u64;
        let core = Userfault::new(memory(), tag)?;
        if user_only {
            core.set_features(userfault::USER_MODE_ONLY);
        }
        Ok(Self {
            core,
            arrivals,
            space: space.downgrade(),
            features: AtomicU64::new(0),
        })
    }

    /// The memory whose faults it handles.
    ///
    /// # Errors
    /// `ESRCH` if that is gone.
    pub fn space(&self) -> Result<Shared<UserSpace>, Errno> {
        self.space.upgrade().ok_or(ESRCH)
    }

    /// Whether the features were agreed on.
    pub fn is_initialised(&self) -> bool {
        self.features.load(Ordering::Relaxed) != 0
    }

    /// Agrees on features, once.
    ///
    /// # Errors
    /// `EINVAL` if that was done, or for unknown features; `EPERM`.
    pub fn agree(&self, wanted: u64) -> Result<(), Errno> {
        let forks = wanted & u64::from(linux::UFFD_FEATURE_EVENT_FORK) != 0;
        let may_trace = |process: &process::Process| {
            let capabilities = process.limits.lock().capabilities;
            capabilities.has(linux::CAP_SYS_PTRACE)
        };
        if forks && !may_trace(process::current()) {
            return Err(EPERM);
        }
        let mut features = wanted;
        if features & u64::from(linux::UFFD_FEATURE_WP_ASYNC) != 0 {
            features |= u64::from(linux::UFFD_FEATURE_WP_UNPOPULATED);
        }
        if features & !FEATURES != 0 {
            return Err(EINVAL);
        }
        self.features
            .compare_exchange(
                0,
                features | INITIALISED,
                Ordering::SeqCst,
                Ordering::Relaxed,
            )
            .map_err(|_| EINVAL)?;
        self.core.set_features(features);
        Ok(())
    }

    /// The next message; waits for one if `may_wait`.
    fn next(&self, may_wait: bool) -> Result<Message, Errno> {
        loop {
            if let Some(message) = self.core.read() {
                return Ok(message);
            }
            if !may_wait {
                return Err(EAGAIN);
            }
            let waiting = &self.arrivals.waiting;
            waiting.fetch_add(1, Ordering::SeqCst);
            let hopeless = || Ok(!self.core.is_readable());
            let key = self.arrivals.key();
            let woken = wait::sleep(key, u32::MAX, None, Interruptible::Yes, hopeless);
            waiting.fetch_sub(1, Ordering::SeqCst);
            if woken? == Some(Woken::Signal) && sched::current().is_interrupted() {
                return Err(RESTART);
            }
        }
    }

    /// Reads messages, once there is one.
    ///
    /// # Errors
    /// `EINVAL` for less than a message, or before features were agreed on; `EAGAIN`, `EFAULT`, or a signal came.
    pub fn read(&self, to: u64, length: u64, may_wait: bool) -> Answer {
        if !self.is_initialised() || length < MESSAGE {
            return Err(EINVAL);
        }
        let mut done = 0;
        while length - done >= MESSAGE {
            let message = match self.next(may_wait && done == 0) {
                Ok(message) => message,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            };
            if uaccess::write(to + done, &encode(&message)).is_err() {
                return if done > 0 { Ok(done) } else { Err(EFAULT) };
            }
            done += MESSAGE;
        }
        Ok(done)
    }

    /// The events that are ready now. `waits`: whether a read would wait, which `poll` does not allow.
    pub fn events(&self, waits: bool) -> Events {
        if !self.is_initialised() || waits {
            return Events::ERROR;
        }
        let mut events = Events::empty();
        events.set(Events::IN, self.core.is_readable());
        events
    }

    pub fn readiness(&self) -> &Readiness {
        &self.arrivals.readiness
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        match self.space() {
            Ok(space) => space.close_userfault(&self.core),
            Err(_) => self.core.close(),
        }
    }
}

/// A message as programs read it (`struct uffd_msg`).
fn encode(message: &Message) -> [u64; 4] {
    match *message {
        Message::Fault {
            address,
            flags,
            thread,
        } => {
            let event = u64::from(linux::UFFD_EVENT_PAGEFAULT);
            [event, flags, address, u64::from(thread)]
        }
    }
}
