//! Kinds of memory access, and the protection that a mapping grants.

/// A kind of memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// A load.
    Read,
    /// A store, or a read-modify-write.
    Write,
    /// An instruction fetch.
    Execute,
}

/// The accesses that a mapping allows. Every combination is legal; a machine that cannot express one grants
/// what Linux grants there.
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
    /// Whether an access is allowed. As in Linux on x86-64, write or execute permission includes read: every
    /// present page is readable there.
    pub fn allows(self, access: Access) -> bool {
        match access {
            Access::Read => self.read || self.write || self.execute,
            Access::Write => self.write,
            Access::Execute => self.execute,
        }
    }

    /// Whether only instruction fetches are allowed. A machine that cannot express this allows loads, too.
    #[inline]
    pub fn is_execute_only(self) -> bool {
        self.execute && !self.read && !self.write
    }

    /// Whether nothing is allowed.
    pub fn is_none(self) -> bool {
        !(self.read || self.write || self.execute)
    }
}
