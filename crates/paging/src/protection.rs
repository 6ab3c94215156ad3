//! Accesses, and what a mapping allows of them.

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// A load.
    Read,
    /// A store, or a read-modify-write.
    Write,
    /// An instruction fetch.
    Execute,
}

/// What accesses are allowed. Every combination is legal; a machine that cannot
/// express one grants what Linux grants there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Protection {
    /// Loads.
    pub read: bool,
    /// Stores.
    pub write: bool,
    /// Instruction fetches.
    pub execute: bool,
}

impl Protection {
    /// Whether an access is allowed. On x86-64 every present page can be read,
    /// so that writing or executing includes reading, as in Linux there.
    pub fn allows(self, access: Access) -> bool {
        match access {
            Access::Read => self.read || self.write || self.execute,
            Access::Write => self.write,
            Access::Execute => self.execute,
        }
    }

    /// Whether instruction fetches are allowed and nothing else is: on a machine that cannot
    /// express that loads are allowed too.
    #[inline]
    pub fn is_execute_only(self) -> bool {
        self.execute && !self.read && !self.write
    }

    /// Whether nothing is allowed.
    pub fn is_none(self) -> bool {
        !(self.read || self.write || self.execute)
    }
}
