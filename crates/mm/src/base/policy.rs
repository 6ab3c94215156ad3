//! Fault policies: how a fault finds and holds the mapping. Policies differ in nothing else.

use core::fmt;
use core::str::FromStr;

/// A fault policy, chosen per address space, at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Policy {
    /// Every fault takes the mmap lock for reading: Linux until 6.3.
    Classic = 0,
    /// Every fault takes a read lock of its mapping: Linux since 6.4.
    VmaLock = 1,
    /// No lock: work from what was found, claim, validate, publish.
    #[cfg(feature = "speculative")]
    Speculative = 2,
}

impl Policy {
    /// All policies of this build.
    pub const ALL: &'static [Policy] = &[
        Policy::Classic,
        Policy::VmaLock,
        #[cfg(feature = "speculative")]
        Policy::Speculative,
    ];

    /// Whether writers hold the address space's mmap lock in addition to their range.
    pub(crate) fn holds_mmap_lock(self) -> bool {
        matches!(self, Policy::Classic | Policy::VmaLock)
    }

    /// Returns the name by which users choose it.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Classic => "classic",
            Policy::VmaLock => "vma-lock",
            #[cfg(feature = "speculative")]
            Policy::Speculative => "speculative",
        }
    }
}

impl Default for Policy {
    /// The last of [`Policy::ALL`]: speculative, where the build has it.
    fn default() -> Self {
        Policy::ALL[Policy::ALL.len() - 1]
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for a name that no policy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPolicy;

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no such policy; there are")?;
        Policy::ALL
            .iter()
            .try_for_each(|policy| write!(f, " {policy}"))
    }
}

impl core::error::Error for UnknownPolicy {}

impl FromStr for Policy {
    type Err = UnknownPolicy;
    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Policy::ALL
            .iter()
            .copied()
            .find(|policy| policy.name() == name)
            .ok_or(UnknownPolicy)
    }
}
