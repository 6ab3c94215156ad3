//! Signals, as Linux delivers them.
//!
//! `action` holds the actions of signals, `pending` the pending ones. `force` raises signals for CPU
//! exceptions, `send` those of programs, and `deliver` runs handlers on the return to user mode. The layout
//! of a signal frame is the architecture's (`arch::signal_frame`).

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
    /// Signals for the process, which any of its threads may take.
    pub waiting: SpinLock<Pending>,
}

impl Signals {
    /// The state without pending signals.
    pub fn new(actions: Shared<Actions>) -> Self {
        Self {
            actions: Part::new(actions),
            waiting: SpinLock::new(Pending::new()),
        }
    }

    /// The action of a signal.
    pub fn action(&self, signal: u32) -> Action {
        self.actions.with(|actions| actions.get(signal))
    }

    /// Sets the action of a signal.
    pub fn set_action(&self, signal: u32, action: Action) {
        self.actions.with(|actions| actions.set(signal, action));
    }
}

/// A set of signals, signal `n` being bit `n - 1`.
pub type Set = u64;

/// The number of signals.
pub const COUNT: u32 = 64;

/// A signal's bit.
pub const fn bit(signal: u32) -> Set {
    1 << (signal - 1)
}

/// Signals that no thread can block.
pub const UNBLOCKABLE: Set = bit(linux::SIGKILL) | bit(linux::SIGSTOP);

/// Signals that CPU exceptions raise: delivered before others, as on Linux.
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
