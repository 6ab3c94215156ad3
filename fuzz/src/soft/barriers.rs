//! `membarrier` for the soft machine, which has no such call: only the registrations, as a kernel
//! keeps them. The host's CPUs provide the barriers, and their order is strong enough here: one thread
//! acts at a time.

use std::sync::atomic::{AtomicU64, Ordering};

use faultless_mm::Errno;

const GLOBAL: u64 = 1;
const GLOBAL_EXPEDITED: u64 = 2;
const REGISTER_GLOBAL: u64 = 4;
const PRIVATE: u64 = 8;
const REGISTER_PRIVATE: u64 = 0x10;
const SYNC_CORE: u64 = 0x20;
const REGISTER_SYNC_CORE: u64 = 0x40;
const REGISTRATIONS: u64 = 0x200;

/// The registrations of a process.
#[derive(Default)]
pub struct Barriers(AtomicU64);

impl Barriers {
    /// Copies the registrations of the parent to a forked process.
    pub fn inherit(&self, parent: &Barriers) {
        let registered = parent.0.load(Ordering::Relaxed);
        self.0.store(registered, Ordering::Relaxed);
    }

    /// The call.
    pub fn call(&self, command: u64, flags: u64) -> Result<u64, Errno> {
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        let registered = self.0.load(Ordering::Relaxed);
        let wants = |what| match registered & what {
            0 => Err(Errno::EPERM),
            _ => Ok(0),
        };
        match command {
            GLOBAL | GLOBAL_EXPEDITED => Ok(0),
            PRIVATE => wants(REGISTER_PRIVATE),
            SYNC_CORE => wants(REGISTER_SYNC_CORE),
            REGISTER_GLOBAL | REGISTER_PRIVATE | REGISTER_SYNC_CORE => {
                self.0.fetch_or(command, Ordering::Relaxed);
                Ok(0)
            }
            REGISTRATIONS if registered & REGISTER_SYNC_CORE != 0 => {
                Ok(registered | REGISTER_PRIVATE)
            }
            REGISTRATIONS => Ok(registered),
            _ => Err(Errno::EINVAL),
        }
    }
}
