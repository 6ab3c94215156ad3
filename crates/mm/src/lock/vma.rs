//! How a fault finds and holds its mapping: the only place where policies differ.
//!
//! Whatever is held, validation asks the same question: does the slot still hold the value that was found?
//! Under a lock, validation fails only if the slot was cut into smaller ones or a stack grew. A new try sees
//! the change.

use faultless_paging::{Access, Page, Pages, Protection};
use faultless_sync::reclaim::Section;

use crate::base::machine::Machine;
use crate::base::policy::Policy;
use crate::lock::Mappings;
use crate::lock::RangeReadGuard;
use crate::table::retry::Retry;
use crate::table::txn::Validate;
use crate::tree::mapping::Attributes;
use crate::tree::vma_lock::VmaRead;
use crate::tree::{Found, SlotState};

/// How a fault holds its mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Not at all.
    #[cfg(feature = "speculative")]
    Speculative,
    /// By a read lock of the mapping.
    VmaLock,
    /// By the mmap lock, for reading; or by a hold of the page, if writers do not take the mmap lock.
    Locked,
}

impl Mode {
    /// Returns the mode in which faults of a policy begin.
    #[inline]
    pub(crate) fn of(policy: Policy) -> Self {
        match policy {
            Policy::Classic => Mode::Locked,
            Policy::VmaLock => Mode::VmaLock,
            #[cfg(feature = "speculative")]
            Policy::Speculative => Mode::Speculative,
        }
    }

    /// Whether nothing is held.
    #[inline]
    pub(crate) fn is_speculative(self) -> bool {
        !matches!(self, Mode::VmaLock | Mode::Locked)
    }

    /// Takes the lock that the mode needs before it finds the mapping of `page`.
    #[inline]
    pub(crate) fn lock<M: Machine>(
        self,
        maps: &Mappings<M>,
        page: Page,
    ) -> Option<RangeReadGuard<'_, M>> {
        match self {
            Mode::Locked => Some(maps.hold_page(page.0)),
            _ => None,
        }
    }
}

/// A mapping, found and held.
pub(crate) struct VmaRef<'s> {
    found: Found<'s>,
    _read: Option<VmaRead<'s>>,
}

impl<'s> VmaRef<'s> {
    /// Finds and holds the mapping of `page`. `None`: there is none.
    #[inline]
    pub(crate) fn find<M: Machine>(
        maps: &'s Mappings<M>,
        page: Page,
        mode: Mode,
        _section: &'s Section<'_>,
    ) -> Result<Option<Self>, Retry> {
        let found = maps.tree.find(page.0);
        // SAFETY: found inside the section, which outlives the hold.
        let mapping = match unsafe { found.word.content() } {
            SlotState::Live(mapping) => mapping,
            SlotState::Changing(_) => return Err(Retry::MappingChanged),
            _ => return Ok(None),
        };
        let read = match mode {
            Mode::VmaLock => match mapping.vma_lock().try_read(&maps.busy.write_hold) {
                // A writer may have ended before the lock was acquired: check the slot value again.
                Some(read) if found.is_valid() => Some(read),
                _ => return Err(Retry::MappingChanged),
            },
            _ => None,
        };
        Ok(Some(Self { found, _read: read }))
    }

    /// Returns the accesses that the mapping allows.
    #[inline]
    pub(crate) fn protection(&self) -> Protection {
        self.found.word.protection()
    }

    /// Whether the mapping has a memory object or a userfaultfd.
    #[inline]
    pub(crate) fn is_special(&self) -> bool {
        self.found.word.is_special()
    }

    /// Whether stores are visible in all mappings of the object. Reads the mapping, unless it is an ordinary one.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_special() && self.attributes().is_some_and(|a| a.flags.shared)
    }

    /// Whether a device is mapped. Reads the mapping, unless it is an ordinary one.
    pub(crate) fn is_device(&self) -> bool {
        self.is_special() && self.attributes().is_some_and(|a| a.flags.device)
    }

    /// Whether an access that ignores protections is allowed: a write to private memory gets a copy, which
    /// nothing else sees. Never allowed for a device.
    #[cold]
    pub(crate) fn may_be_forced(&self, access: Access) -> bool {
        (access != Access::Write || !self.is_shared()) && !self.is_device()
    }

    /// Returns the mapping's attributes: one more cache line to read.
    pub(crate) fn attributes(&self) -> Option<&'s Attributes> {
        // SAFETY: found inside the section, which outlives the hold.
        unsafe { self.found.word.mapping() }.map(|mapping| mapping.attributes())
    }

    /// Whether every page of `span` has this mapping, now.
    pub(crate) fn covers<M: Machine>(&self, maps: &Mappings<M>, span: Pages) -> bool {
        maps.tree.all_slots(span, |word| word == self.found.word)
    }

    /// Returns the same mapping at another page, if the slot of that page holds the same value now.
    pub(crate) fn beside<M: Machine>(&self, maps: &'s Mappings<M>, page: Page) -> Option<Self> {
        let found = maps.tree.find(page.0);
        (found.word == self.found.word).then_some(Self { found, _read: None })
    }
}

impl Validate for VmaRef<'_> {
    #[inline]
    fn is_valid(&self) -> bool {
        self.found.is_valid()
    }
}
