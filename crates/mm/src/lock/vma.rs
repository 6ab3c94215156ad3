//! How a fault finds and holds its mapping: the one place where policies differ.
//!
//! Whatever is held, validation asks the same question: does the slot still
//! hold the word that was found? Under a lock the answer can only be "no" where
//! a slot was cut into smaller ones or a stack grew, which a new try sees.

use faultless_paging::{Access, Page, Protection};
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

/// How mappings are held during a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Not at all.
    #[cfg(feature = "speculative")]
    Speculative,
    /// By a read lock of the mapping.
    VmaLock,
    /// By the mmap lock, for reading; where writers do not take that, by a hold of the page.
    Locked,
}

impl Mode {
    /// How faults of a policy begin.
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

    /// What the mode takes before it looks for the mapping of a page.
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
    /// Finds the mapping of `page`. `None`: there is none.
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
                // Locked readers come after the writer: the word must be looked at again.
                Some(read) if found.is_valid() => Some(read),
                _ => return Err(Retry::MappingChanged),
            },
            _ => None,
        };
        Ok(Some(Self { found, _read: read }))
    }

    /// What the mapping allows.
    #[inline]
    pub(crate) fn protection(&self) -> Protection {
        self.found.word.protection()
    }

    /// Whether the mapping has a store.
    #[inline]
    pub(crate) fn is_backed(&self) -> bool {
        self.found.word.is_backed()
    }

    /// Whether what is written is for all who map the store. Reads the mapping.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_backed() && self.attributes().is_some_and(|a| a.flags.shared)
    }

    /// Whether a device is mapped. Reads the mapping, if it has a store.
    pub(crate) fn is_device(&self) -> bool {
        self.is_backed() && self.attributes().is_some_and(|a| a.flags.device)
    }

    /// Whether who may pass over protections may do this access: a write to private memory gets
    /// a copy, which nobody else sees. Of a device nothing is reached so.
    #[cold]
    pub(crate) fn may_be_forced(&self, access: Access) -> bool {
        (access != Access::Write || !self.is_shared()) && !self.is_device()
    }

    /// The mapping's attributes: one more line to read.
    pub(crate) fn attributes(&self) -> Option<&'s Attributes> {
        // SAFETY: found inside the section, which outlives the hold.
        unsafe { self.found.word.mapping() }.map(|mapping| mapping.attributes())
    }

    /// The same mapping at another page of it, if that is where it is found now.
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
