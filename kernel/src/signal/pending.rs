//! Pending signals, and a thread's signal state.

use linux_raw_sys::general as linux;

use super::{COUNT, SYNCHRONOUS, Set, bit};

/// A signal and its details: the fields of `siginfo_t` in use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Info {
    pub signal: u32,
    pub code: i32,
    /// `si_addr`, or `si_pid` and `si_uid`.
    pub fields: u64,
    /// `si_value`, `si_status`, or `si_pkey`.
    pub value: u64,
}

impl Info {
    /// As programs see it (`siginfo_t`).
    pub fn words(&self) -> [u64; 16] {
        let mut words = [0; 16];
        words[0] = u64::from(self.signal);
        words[1] = u64::from(self.code as u32);
        words[2] = self.fields;
        let has_key = self.signal == linux::SIGSEGV && self.code == linux::SEGV_PKUERR as i32;
        words[if has_key { 4 } else { 3 }] = self.value;
        words
    }
}

/// Pending signals: at most one of each number.
pub struct Pending {
    set: Set,
    infos: [Info; COUNT as usize],
}

impl Pending {
    pub const fn new() -> Self {
        Self {
            set: 0,
            infos: [Info {
                signal: 0,
                code: 0,
                fields: 0,
                value: 0,
            }; COUNT as usize],
        }
    }

    /// Adds a signal, unless one of its number is pending already.
    pub fn add(&mut self, info: Info) {
        if self.set & bit(info.signal) == 0 {
            self.set |= bit(info.signal);
            self.infos[info.signal as usize - 1] = info;
        }
    }

    /// Drops the pending signals of a set.
    pub fn forget(&mut self, signals: Set) {
        self.set &= !signals;
    }

    /// The set of pending signals.
    pub fn set(&self) -> Set {
        self.set
    }

    /// Takes the next signal in `wanted`: synchronous ones first, then by number.
    pub fn take(&mut self, wanted: Set) -> Option<Info> {
        let ready = self.set & wanted;
        let first = if ready & SYNCHRONOUS != 0 {
            ready & SYNCHRONOUS
        } else {
            ready
        };
        if first == 0 {
            return None;
        }
        let number = first.trailing_zeros();
        self.set &= !(1 << number);
        Some(self.infos[number as usize])
    }
}

/// The stack that handlers may run on.
#[derive(Clone, Copy, Debug)]
pub struct AlternateStack {
    pub start: u64,
    pub size: u64,
    pub flags: u32,
}

impl AlternateStack {
    pub const NONE: Self = Self {
        start: 0,
        size: 0,
        flags: linux_raw_sys::general::SS_DISABLE,
    };

    /// Whether a stack pointer lies on it.
    pub fn contains(&self, sp: u64) -> bool {
        self.size != 0 && sp > self.start && sp - self.start <= self.size
    }
}

/// The trap that a handler finds in its context.
#[derive(Clone, Copy, Default)]
pub struct Trap {
    pub number: u64,
    pub error: u64,
    pub address: u64,
}

/// A thread's signal state.
pub struct ThreadSignals {
    pub blocked: Set,
    /// The mask to restore after a temporary one (`rt_sigsuspend`).
    pub saved: Option<Set>,
    /// Signals that are blocked, except during the current `rt_sigtimedwait`.
    pub awaited: Set,
    pub pending: Pending,
    pub stack: AlternateStack,
    pub trap: Trap,
}

impl ThreadSignals {
    pub const fn new() -> Self {
        Self {
            blocked: 0,
            saved: None,
            awaited: 0,
            pending: Pending::new(),
            stack: AlternateStack::NONE,
            trap: Trap {
                number: 0,
                error: 0,
                address: 0,
            },
        }
    }
}
