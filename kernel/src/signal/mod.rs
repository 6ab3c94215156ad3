//! Signals, as Linux delivers them.
//!
//! `action` says what a signal does, `pending` holds those that wait, `force` raises the ones that
//! the CPU causes, `send` those that programs send, `deliver` runs handlers on the way to user mode.
//! How a handler's frame looks on the user stack is the architecture's (`arch::signal_frame`).

pub mod action;
pub mod deliver;
pub mod force;
pub mod pending;
pub mod send;

use linux_raw_sys::general as linux;

use crate::process::Part;
use crate::shared::Shared;
use crate::sync::SpinLock;
use action::{Action, Actions};
use pending::Pending;

/// A process's signals.
pub struct Signals {
    pub actions: Part<Actions>,
    /// For the process, whichever thread takes them.
    pub waiting: SpinLock<Pending>,
}

impl Signals {
    /// None waiting.
    pub fn new(actions: Shared<Actions>) -> Self {
        Self {
            actions: Part::new(actions),
            waiting: SpinLock::new(Pending::new()),
        }
    }

    /// What a signal does now.
    pub fn action(&self, signal: u32) -> Action {
        self.actions.with(|actions| actions.get(signal))
    }

    /// Changes what a signal does.
    pub fn set_action(&self, signal: u32, action: Action) {
        self.actions.with(|actions| actions.set(signal, action));
    }
}

/// A set of signals, signal `n` being bit `n - 1`.
pub type Set = u64;

/// How many signals there are.
pub const COUNT: u32 = 64;

/// A signal's bit.
pub const fn bit(signal: u32) -> Set {
    1 << (signal - 1)
}

/// What no thread can block.
pub const UNBLOCKABLE: Set = bit(linux::SIGKILL) | bit(linux::SIGSTOP);

/// What the CPU raises: delivered before others, as Linux does.
pub const SYNCHRONOUS: Set = bit(linux::SIGSEGV)
    | bit(linux::SIGBUS)
    | bit(linux::SIGILL)
    | bit(linux::SIGTRAP)
    | bit(linux::SIGFPE)
    | bit(linux::SIGSYS);

/// Whether a signal without a handler does nothing.
pub fn is_ignored_by_default(signal: u32) -> bool {
    matches!(
        signal,
        linux::SIGCHLD | linux::SIGCONT | linux::SIGURG | linux::SIGWINCH
    )
}
