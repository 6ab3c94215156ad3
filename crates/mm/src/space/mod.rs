//! An address space: mappings with their locks, page tables, and what operations keep beside them.
//!
//! | field | who writes it | when |
//! | --- | --- | --- |
//! | `maps` | see [`crate::lock`] | |
//! | `soft_dirty_epoch` | the caller that clears soft-dirty bits | each time |
//! | `lock_future` | a writer that has every range | `mlockall` |
//! | `place` | a space that is made or ends, under the list's lock; a walk of an object's mappings that comes here | |
//!
//! It lies in a frame of its own, so that it stays where it is while its owner moves the
//! [`OwnedSpace`]: mappings of an object lead here ([`crate::object::mappings`]).

mod edit;
pub(crate) mod memory;
mod owned;
pub(crate) mod soft_dirty;
mod trace;

use faultless_paging::{Format, Frame, PAGE_SIZE, Pages, SpaceId};
use faultless_sync::atomic::{AtomicU64, Local};
use faultless_sync::{CpuSet, Padded, WaitGroup};

use crate::base::errno::Errno;
use crate::base::layout::Layout;
use crate::base::list::Hook;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::base::notes::Note;
use crate::base::policy::Policy;
use crate::lock::limits::Limits;
use crate::lock::mappings::Mappings;
use crate::table::Tables;
use crate::tree::Tree;
use crate::tree::account::VmStats;

pub use owned::OwnedSpace;

/// An address space, in a frame of its own ([`OwnedSpace`]).
pub struct AddressSpace<M: Machine> {
    pub(crate) maps: Mappings<M>,
    /// The frame in which this is.
    pub(crate) frame: Frame,
    /// How often soft-dirty bits were cleared ([`crate::space::soft_dirty`]).
    pub(crate) soft_dirty_epoch: AtomicU64,
    /// Whether what is mapped from now on is locked (a [`crate::tree::mapping::Locked`]).
    pub(crate) lock_future: Local,
    /// Its place among all spaces, and its family.
    pub(crate) place: Padded<SpaceLink>,
}

/// A space's place in the list of all. Written under the list's lock, the family before the space is in it.
#[repr(C)]
pub(crate) struct SpaceLink {
    pub(crate) hook: Hook,
    pub(crate) is_listed: Local,
    pub(crate) family: Local,
    /// Walks of an object's mappings that are here ([`crate::rmap::file`]).
    pub(crate) visitors: WaitGroup,
}

impl SpaceLink {
    /// A space that is the first of its family: the family has its number.
    fn new(id: u64) -> Self {
        Self {
            hook: Hook::new(),
            is_listed: Local::new(0),
            family: Local::new(id),
            visitors: WaitGroup::new(),
        }
    }
}

impl<M: Machine> AddressSpace<M> {
    pub(crate) const FORMAT: Format = Tables::<M>::FORMAT;

    #[inline]
    pub(crate) fn tree(&self) -> &Tree {
        &self.maps.tree
    }

    #[inline]
    pub(crate) fn tables(&self) -> &Tables<M> {
        &self.maps.tables
    }

    /// The address by which lists lead here ([`AddressSpace::at`]).
    pub(crate) fn expose(&self) -> u64 {
        core::ptr::from_ref(self).expose_provenance() as u64
    }

    /// The address space that lies at an exposed address.
    ///
    /// # Safety
    /// It was exposed by a space of this machine, which does not end during `'a`.
    pub(crate) unsafe fn at<'a>(address: u64) -> Option<&'a Self> {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::with_exposed_provenance::<Self>(address as usize).as_ref() }
    }

    /// Its number, never used twice.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.maps.tables.id
    }

    /// Names the space to the machine's TLBs; holds the root table.
    pub fn id(&self) -> SpaceId {
        self.tables().space_id()
    }

    /// The CPUs that run this space. A CPU inserts itself before it loads the
    /// root and removes itself after it has dropped all translations.
    pub fn cpus(&self) -> &CpuSet {
        &self.tables().cpus
    }

    /// Where things are.
    pub fn layout(&self) -> &Layout {
        &self.maps.layout
    }

    /// The policy of faults.
    #[inline]
    pub fn policy(&self) -> Policy {
        self.maps.policy()
    }

    /// Changes the policy of faults from now on. Safe at any moment: writers
    /// run the same protocol under every policy.
    pub fn set_policy(&self, policy: Policy) {
        self.maps.set_policy(policy);
    }

    /// Under `classic` and `vma-lock`: whether `munmap` keeps the mmap lock for writing until all
    /// pages are gone, as Linux did before 4.20, instead of downgrading it. For comparisons.
    pub fn hold_zaps(&self, held: bool) {
        match held {
            true => self.maps.note(Note::HELD_ZAPS),
            false => {
                self.maps.take_note(Note::HELD_ZAPS);
            }
        }
    }

    /// The memory core the space belongs to.
    pub fn memory(&self) -> &'static Memory<M> {
        self.maps.memory
    }

    #[inline]
    pub(crate) fn machine(&self) -> &'static M {
        self.memory().machine()
    }

    /// What it may map.
    pub fn limits(&self) -> Limits {
        self.maps.limits()
    }

    /// What it may map from now on.
    pub fn set_limits(&self, limits: &Limits) {
        self.maps.set_limits(limits);
    }

    /// What is mapped, in numbers. Beside writers it may be a change half done.
    pub fn totals(&self) -> VmStats {
        self.maps.totals()
    }

    /// Start and end of the heap ([`AddressSpace::brk`]), in bytes.
    pub fn heap(&self) -> (u64, u64) {
        self.maps.heap()
    }

    /// Its family's number: a space's, so that no space of another family has it.
    pub(crate) fn family(&self) -> u64 {
        self.place.family.get()
    }

    /// Makes a space that is not in the list yet one of another one's family.
    pub(crate) fn join_family(&self, other: &Self) {
        self.place.family.set(other.family());
    }

    pub(crate) fn all_pages(&self) -> Pages {
        self.maps.all_pages()
    }

    /// The pages of a byte range, checked as `munmap` checks it.
    pub(crate) fn check_range(&self, address: u64, length: u64) -> Result<u64, Errno> {
        let end = self.layout().end;
        if !address.is_multiple_of(PAGE_SIZE) || length > end || address > end - length {
            return Err(Errno::EINVAL);
        }
        Ok(address + length.next_multiple_of(PAGE_SIZE))
    }
}
