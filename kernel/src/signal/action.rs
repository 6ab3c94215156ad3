//! Signal actions: a table for each process.

use linux_raw_sys::general as linux;

use super::{COUNT, Set, bit};
use crate::errno::Errno;
use crate::shared::Shared;
use crate::sync::SpinLock;

/// The kernel's `struct sigaction`, x86-64.
#[derive(Clone, Copy, Debug)]
pub struct Action {
    pub handler: u64,
    pub flags: u64,
    pub restorer: u64,
    pub mask: Set,
}

/// No handler: the signal's default action.
pub const DEFAULT: u64 = 0;
/// The signal does nothing.
pub const IGNORE: u64 = 1;

const NOTHING: Action = Action {
    handler: DEFAULT,
    flags: 0,
    restorer: 0,
    mask: 0,
};

/// The actions of all signals.
pub struct Actions(SpinLock<[Action; COUNT as usize]>);

impl Actions {
    /// Default actions for all signals.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new() -> Result<Shared<Self>, Errno> {
        Shared::new(Self(SpinLock::new([NOTHING; COUNT as usize])))
    }

    /// A copy for another process.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn copy(&self) -> Result<Shared<Self>, Errno> {
        Shared::new(Self(SpinLock::new(*self.0.lock())))
    }

    /// The action of a signal.
    pub fn get(&self, signal: u32) -> Action {
        self.0.lock()[signal as usize - 1]
    }

    /// Sets the action of a signal.
    pub fn set(&self, signal: u32, mut action: Action) {
        action.mask &= !super::UNBLOCKABLE;
        self.0.lock()[signal as usize - 1] = action;
    }

    /// Resets handlers to the default for a new program; ignored signals stay ignored.
    pub fn forget_handlers(&self) {
        for action in self.0.lock().iter_mut() {
            let handler = match action.handler {
                IGNORE => IGNORE,
                _ => DEFAULT,
            };
            *action = Action { handler, ..NOTHING };
        }
    }
}

impl Action {
    /// Whether it has this flag.
    pub fn has(&self, flag: u32) -> bool {
        self.flags & u64::from(flag) != 0
    }

    /// The signals that its handler blocks in addition to those blocked before.
    pub fn blocks(&self, signal: u32) -> Set {
        self.mask
            | if self.has(linux::SA_NODEFER) {
                0
            } else {
                bit(signal)
            }
    }

    /// Whether the signal can be dropped immediately.
    pub fn ignores(&self, signal: u32) -> bool {
        self.handler == IGNORE || self.handler == DEFAULT && super::is_ignored_by_default(signal)
    }
}
