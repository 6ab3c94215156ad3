//! Shootdowns between soft CPUs.
//!
//! Every access of a CPU happens in an *access section*: it makes its section
//! number odd, answers what is in its mailbox, translates, accesses, and makes
//! the number even. Who flushes puts a request in the mailbox, then makes sure
//! that its write is seen by the next section (`membarrier` executes a full
//! barrier on every running thread; without it, sections fence), then waits
//! for the section that is open now, if one is.
//!
//! So a CPU outside an access, computing or parked or in the core, answers by
//! doing nothing, and a shootdown waits for one access at most.
//!
//! Lines: a CPU's section and pending word are its own, written by others only
//! when they flush.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence, fence};
use std::sync::{Mutex, PoisonError};

use faultless_paging::{Flush, Requests, SpaceId};

use crate::host;
use crate::tlb::SINGLE_PAGES;

/// The side of a CPU that others see.
#[repr(align(128))]
pub struct Target {
    section: AtomicU64,
    pending: AtomicBool,
    mailbox: Mutex<Mailbox>,
}

/// What a CPU has been asked to flush.
pub struct Mailbox {
    /// What they were about: ranges of spaces.
    pub ranges: Requests<u64, { SINGLE_PAGES as usize }>,
    /// Requests received.
    pub received: u64,
    /// Requests ever received.
    pub number: u64,
}

impl Target {
    pub fn new() -> Self {
        let mailbox = Mailbox {
            ranges: Requests::new(0),
            received: 0,
            number: 0,
        };
        Self {
            section: AtomicU64::new(0),
            pending: AtomicBool::new(false),
            mailbox: Mutex::new(mailbox),
        }
    }

    /// Begins an access section; whether requests wait. On the CPU itself.
    #[inline]
    pub fn begin(&self, asymmetric: bool) -> bool {
        let number = self.section.load(Ordering::Relaxed);
        self.section.store(number + 1, Ordering::Relaxed);
        if asymmetric {
            // The requester's `membarrier` stands in for the fence.
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
        self.pending.load(Ordering::Relaxed)
    }

    /// Ends an access section. Release: pairs with the acquire in `wait`.
    #[inline]
    pub fn end(&self) {
        let number = self.section.load(Ordering::Relaxed);
        self.section.store(number + 1, Ordering::Release);
    }

    /// Takes the requests out, on the CPU itself.
    pub fn answer(&self, act: impl FnOnce(&mut Mailbox)) {
        let mut mailbox = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        self.pending.store(false, Ordering::Relaxed);
        act(&mut mailbox);
        mailbox.ranges.clear();
        mailbox.received = 0;
    }

    /// Asks the CPU to flush. The request's number there.
    pub fn request(&self, space: SpaceId, flush: Flush) -> u64 {
        let mut mailbox = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        mailbox.received += 1;
        mailbox.number += 1;
        mailbox.ranges.add(space.id, flush.start..flush.end);
        self.pending.store(true, Ordering::SeqCst);
        mailbox.number
    }

    /// Waits until no access section is open that may have missed a request
    /// made before [`publish`].
    pub fn wait(&self) {
        let seen = self.section.load(Ordering::Acquire);
        if seen.is_multiple_of(2) {
            return;
        }
        let mut turn = 0u32;
        while self.section.load(Ordering::Acquire) == seen {
            if turn < 64 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
            turn = turn.saturating_add(1);
        }
    }
}

/// Makes requests seen by every access section that begins from now on.
pub fn publish(asymmetric: bool) {
    if asymmetric {
        host::barrier_everywhere();
    } else {
        fence(Ordering::SeqCst);
    }
}
