//! Userfaultfds: a descriptor from which a program reads the faults of registered memory, and by which it
//! resolves them.
//!
//! The core has the queue of faults (`faultless_mm::Userfault`). What is here connects it with descriptors: it
//! sleeps in `read`, and tells `poll`. The state that the core's notification reaches outlives every such
//! notification, because the end of the userfaultfd stops them first.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use linux_raw_sys::general as linux;

use super::description::{Description, Object};
use super::descriptors;
use super::readiness::{Events, Readiness};
use crate::arch::uaccess;
use crate::errno::{Answer, EAGAIN, EFAULT, EINVAL, EPERM, ESRCH, Errno, RESTART};
use crate::memory::machine::{Kernel, memory};
use crate::memory::{Userfault, userfault};
use crate::process::{self, UserSpace};
use crate::sched;
use crate::sched::wait::{self, Interruptible, Woken};
use crate::shared::{Shared, Weak};
use faultless_mm::Message;

/// Bytes of a message.
const MESSAGE: u64 = 32;

/// The features that are there (`UFFD_FEATURE_*`): all of Linux 6.12. Those of `hugetlbfs` say nothing without it.
pub const FEATURES: u64 = (linux::UFFD_FEATURE_PAGEFAULT_FLAG_WP
    | linux::UFFD_FEATURE_EVENT_FORK
    | linux::UFFD_FEATURE_EVENT_REMAP
    | linux::UFFD_FEATURE_EVENT_REMOVE
    | linux::UFFD_FEATURE_MISSING_HUGETLBFS
    | linux::UFFD_FEATURE_MISSING_SHMEM
    | linux::UFFD_FEATURE_EVENT_UNMAP
    | linux::UFFD_FEATURE_SIGBUS
    | linux::UFFD_FEATURE_THREAD_ID
    | linux::UFFD_FEATURE_MINOR_HUGETLBFS
    | linux::UFFD_FEATURE_MINOR_SHMEM
    | linux::UFFD_FEATURE_EXACT_ADDRESS
    | linux::UFFD_FEATURE_WP_HUGETLBFS_SHMEM
    | linux::UFFD_FEATURE_WP_UNPOPULATED
    | linux::UFFD_FEATURE_POISON
    | linux::UFFD_FEATURE_WP_ASYNC
    | linux::UFFD_FEATURE_MOVE) as u64;
/// The flags of a descriptor that a child's userfaultfd inherits, and the features by which the core hands them on.
const INHERITED: [(u32, u64); 2] = [(linux::O_NONBLOCK, 1 << 48), (linux::O_CLOEXEC, 1 << 49)];
const _: () = assert!((INHERITED[0].1 | INHERITED[1].1) & !userfault::OF_PORT == 0);
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
    /// `O_NONBLOCK` and `O_CLOEXEC`, which a child's userfaultfd inherits.
    flags: u32,
}

impl Faults {
    /// Makes one for the memory of the calling process, with these flags of `userfaultfd`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(flags: u32) -> Result<Self, Errno> {
        let space = process::current().space().ok_or(ESRCH)?;
        let core = Userfault::new(memory(), 0)?;
        let known = INHERITED
            .into_iter()
            .chain([(linux::UFFD_USER_MODE_ONLY, userfault::USER_MODE_ONLY)]);
        for (_, bit) in known.filter(|(flag, _)| flags & flag != 0) {
            core.set_features(bit);
        }
        Self::of(core, space.downgrade(), flags, 0)
    }

    fn of(
        core: Userfault,
        space: Weak<UserSpace>,
        flags: u32,
        features: u64,
    ) -> Result<Self, Errno> {
        let arrivals = Shared::new(Arrivals {
            waiting: AtomicU32::new(0),
            readiness: Readiness::new(),
        })?;
        core.set_tag(core::ptr::from_ref::<Arrivals>(&arrivals).expose_provenance() as u64);
        Ok(Self {
            core,
            arrivals,
            space,
            features: AtomicU64::new(features),
            flags,
        })
    }

    /// A descriptor's description for one with these flags.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn describe(self, flags: u32) -> Result<Shared<Description>, Errno> {
        let status = linux::O_RDONLY | flags & linux::O_NONBLOCK;
        Description::new(Object::Faults(self), status, None)
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
            let message = match self.encode(message) {
                Ok(message) => message,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            };
            if uaccess::write(to + done, &message).is_err() {
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

impl Faults {
    /// Returns a message as programs read it (`struct uffd_msg`). The reader of a fork's gets a descriptor.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    fn encode(&self, message: Message) -> Result<[u64; 4], Errno> {
        let words = |event: u32, [a, b, c]: [u64; 3]| [u64::from(event), a, b, c];
        Ok(match message {
            Message::Fault {
                address,
                flags,
                thread,
            } => words(
                linux::UFFD_EVENT_PAGEFAULT,
                [flags, address, u64::from(thread)],
            ),
            Message::Fork { child } => {
                let raw = core::ptr::with_exposed_provenance(child as usize);
                // SAFETY: From `report_forks`, and each message is read once.
                let child = unsafe { Shared::<Description>::from_raw(raw) };
                let closes = self.flags & linux::O_CLOEXEC != 0;
                let number = descriptors::current().add(child, 0, closes)?;
                words(linux::UFFD_EVENT_FORK, [number, 0, 0])
            }
            Message::Remap { from, to, length } => {
                words(linux::UFFD_EVENT_REMAP, [from, to, length])
            }
            Message::Remove { start, end } => words(linux::UFFD_EVENT_REMOVE, [start, end, 0]),
            Message::Unmap { start, end } => words(linux::UFFD_EVENT_UNMAP, [start, end, 0]),
        })
    }
}

/// Reports a fork to the handlers that asked for it. Each gets a userfaultfd of the child's memory.
pub fn report_forks(forked: faultless_mm::Forked<Kernel>, child: &Shared<UserSpace>) {
    let mut name = |_: &Userfault, core: &Userfault| {
        let of = |(flag, bit): (u32, u64)| if core.has(bit) { flag } else { 0 };
        let flags = INHERITED
            .map(of)
            .into_iter()
            .fold(0, |all, flag| all | flag);
        let features = core.features() & FEATURES | INITIALISED;
        let faults = Faults::of(core.again(), child.downgrade(), flags, features).ok()?;
        let description = faults.describe(flags).ok()?;
        Some(Shared::into_raw(description).expose_provenance() as u64)
    };
    let mut unread = |child: u64| {
        let raw = core::ptr::with_exposed_provenance(child as usize);
        // SAFETY: Made above, and not read.
        drop(unsafe { Shared::<Description>::from_raw(raw) });
    };
    forked.report(&mut name, &mut unread);
}
