//! Shared parts of this crate's models: exploration, and a machine that parks threads.

mod explore;

pub use explore::explore;

use faultless_sync::Wait;
use faultless_sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread;

/// A machine that parks threads as on a futex.
#[derive(Default)]
pub struct Machine {
    pub queue: Mutex<()>,
    pub woken: Condvar,
    /// Whether `park` skips the second look at the word: the broken variant.
    pub parks_blindly: bool,
}

impl Wait for Machine {
    fn relax(&self, _turn: u32) {
        thread::yield_now();
    }

    fn park(&self, word: &AtomicU32, expected: u32) {
        let queue = self.queue.lock().unwrap();
        if self.parks_blindly || word.load(Ordering::Relaxed) == expected {
            drop(self.woken.wait(queue).unwrap());
        }
    }

    fn wake(&self, _word: &AtomicU32, _count: u32) {
        drop(self.queue.lock().unwrap());
        self.woken.notify_all();
    }
}
