//! TLB shootdowns between soft CPUs.
//!
//! Every access of a CPU happens in an *access section*: it makes its section number odd, answers what is in
//! its mailbox, translates, accesses, and makes the number even. A flush puts a request in the mailbox, and
//! then makes it visible to the next section: `membarrier` executes a full barrier on every running thread;
//! without it, sections fence. Then it waits for the section that is open now, if there is one.
//!
//! A CPU outside an access (computing, parked, or in the core) need not answer. So a shootdown waits for one
//! access at most.
//!
//! *Writes*: a CPU's own line. Other CPUs write its mailbox and its pending flag only when they flush.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence, fence};
use std::sync::{Mutex, PoisonError};

use faultless_paging::{Flush, Requests, SpaceId};

use crate::host;
use crate::tlb::SINGLE_PAGES;

/// The part of a CPU that other CPUs use.
#[repr(align(128))]
pub struct Target {
    section: AtomicU64,
    pending: AtomicBool,
    mailbox: Mutex<Mailbox>,
}

/// The flush requests to a CPU.
pub struct Mailbox {
    /// The requested ranges of spaces.
    pub ranges: Requests<u64, { SINGLE_PAGES as usize }>,
    /// Requests received and not answered yet.
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

    /// Begins an access section, on the CPU itself. Returns whether requests are pending.
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

    /// Answers the requests and removes them, on the CPU itself.
    pub fn answer(&self, act: impl FnOnce(&mut Mailbox)) {
        let mut mailbox = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        self.pending.store(false, Ordering::Relaxed);
        act(&mut mailbox);
        mailbox.ranges.clear();
        mailbox.received = 0;
    }

    /// Asks the CPU to flush. Returns the request's number there.
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

/// Makes requests visible to every access section that begins from now on.
pub fn publish(asymmetric: bool) {
    if asymmetric {
        host::barrier_everywhere();
    } else {
        fence(Ordering::SeqCst);
    }
}
