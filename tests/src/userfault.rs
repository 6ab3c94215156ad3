//! A userfaultfd on the soft machine: a host thread, on a CPU of its own, is the handler.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use faultless_mm::{Errno, Filled, Message, Pages, PhysicalMemory, Userfault, userfault};
use faultless_soft::{Soft, SoftCpu, SoftMemory, SoftSpace};

const PAGE: u64 = 4096;

/// A userfaultfd of a space, and how many messages were handled.
pub struct Handled<'s> {
    /// The space whose faults it handles.
    pub space: &'s SoftSpace,
    /// The userfaultfd.
    pub to: Userfault<Soft>,
    /// The messages that were read.
    pub messages: AtomicU64,
    over: AtomicBool,
}

impl<'s> Handled<'s> {
    /// Makes one with these features.
    pub fn new(memory: &'static SoftMemory, space: &'s SoftSpace, features: u64) -> Self {
        let to = Userfault::new(memory, 0).unwrap_or_else(|error| panic!("none: {error}"));
        to.set_features(features);
        Self {
            space,
            to,
            messages: AtomicU64::new(0),
            over: AtomicBool::new(false),
        }
    }

    /// Returns the pages of a byte range.
    pub fn pages(&self, start: u64, length: u64) -> Pages {
        self.space
            .userfault_range(start, length)
            .unwrap_or_else(|error| panic!("no range: {error}"))
    }

    /// Registers a byte range.
    pub fn register(&self, start: u64, length: u64, modes: u64) -> Result<(), Errno> {
        self.space
            .register(&self.to, self.pages(start, length), modes)
    }

    /// Copies a page of this word to `at`, and wakes what waits for it.
    pub fn copy(&self, at: u64, word: u64, protected: bool) -> Filled {
        let pages = self.pages(at & !(PAGE - 1), PAGE);
        let machine = self.space.memory().machine();
        let filled = self
            .space
            .userfault_copy(&self.to, pages, protected, &mut |_, frame| {
                let words = machine.pointer(frame).cast::<[u64; 512]>();
                // SAFETY: a frame that nothing shows yet.
                unsafe { words.write([word; 512]) };
                Ok(())
            });
        self.to.wake(pages);
        filled
    }

    /// Write-protects a byte range, or ends that and wakes what waits there.
    pub fn protect(&self, start: u64, length: u64, protects: bool) -> Result<(), Errno> {
        let pages = self.pages(start, length);
        let result = self.space.userfault_protect(&self.to, pages, protects);
        if !protects {
            self.to.wake(pages);
        }
        result
    }

    /// Runs `program` on the calling CPU, and the handler `handle` on CPU 1.
    pub fn beside<R>(
        &self,
        handle: impl Fn(&Self, Message) + Sync,
        program: impl FnOnce() -> R,
    ) -> R {
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        self.over.store(false, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let _over = Over(&self.over);
            scope.spawn(|| {
                SoftCpu::attend(self.space.memory(), 1, || {
                    while !self.over.load(Ordering::Relaxed) {
                        match self.to.read() {
                            Some(message) => {
                                self.messages.fetch_add(1, Ordering::Relaxed);
                                handle(self, message);
                            }
                            None => std::thread::yield_now(),
                        }
                    }
                });
            });
            program()
        })
    }

    /// Returns the messages since the last call.
    pub fn take_messages(&self) -> u64 {
        self.messages.swap(0, Ordering::Relaxed)
    }
}

/// Returns the address of a fault, which must be of this kind.
pub fn fault(message: Message, flags: u64) -> u64 {
    match message {
        Message::Fault {
            address,
            flags: seen,
            ..
        } => {
            assert_eq!(seen, flags);
            address
        }
        event => panic!("no fault: {event:?}"),
    }
}

/// The flags of a store to a protected page.
pub const PROTECTED: u64 = userfault::FLAG_WRITE | userfault::FLAG_WRITE_PROTECT;
