//! An address space: its mappings with their locks, its page tables, and the state that operations keep
//! beside them.
//!
//! | field | writer | when |
//! | --- | --- | --- |
//! | `maps` | see [`crate::lock`] | |
//! | `soft_dirty_epoch` | the thread that clears soft-dirty bits | each time |
//! | `lock_future` | a writer that has every range | `mlockall` |
//! | `place` | a space that is made or ends, under the list's lock; a walk of an object's mappings, here | |
//!
//! An address space lies in a frame of its own, so that it stays in place while its owner moves the
//! [`OwnedSpace`]: mappings of an object lead here ([`crate::object::mappings`]).

mod edit;
pub(crate) mod huge_scan;
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
use crate::table::guests::{GuestHook, HostPages};
use crate::tree::Tree;
use crate::tree::account::VmStats;

pub use owned::OwnedSpace;

/// An address space, in a frame of its own ([`OwnedSpace`]).
pub struct AddressSpace<M: Machine> {
    pub(crate) maps: Mappings<M>,
    /// The frame that holds this.
    pub(crate) frame: Frame,
    /// Counts the clearings of soft-dirty bits ([`crate::space::soft_dirty`]).
    pub(crate) soft_dirty_epoch: AtomicU64,
    /// Whether the program wants no huge pages anywhere (`PR_SET_THP_DISABLE`).
    pub(crate) no_huge: Local,
    /// Whether the scan in the background goes through the space (`crate::ops::khugepaged`).
    pub(crate) is_scanned: AtomicU64,
    /// Whether new mappings are locked (a [`crate::tree::mapping::Locked`]).
    pub(crate) lock_future: Local,
    /// Its links in the list of all spaces, and its family.
    pub(crate) place: Padded<SpaceLink>,
}

/// A space's links in the list of all spaces. Written under the list's lock; the family before the space is
/// listed.
#[repr(C)]
pub(crate) struct SpaceLink {
    pub(crate) hook: Hook,
    pub(crate) is_listed: Local,
    pub(crate) family: Local,
    /// The page to which the sweep has come ([`crate::reclaim::sweep`]).
    pub(crate) hand: Local,
    /// Walks of an object's mappings that are in this space ([`crate::rmap::file`]).
    pub(crate) visitors: WaitGroup,
    /// Walks through all spaces that are in this one ([`crate::rmap::anon`]).
    pub(crate) walkers: WaitGroup,
}

impl SpaceLink {
    /// Makes the links of the first space of a family: its number is the family's.
    fn new(id: u64) -> Self {
        Self {
            hook: Hook::new(),
            is_listed: Local::new(0),
            family: Local::new(id),
            hand: Local::new(0),
            visitors: WaitGroup::new(),
            walkers: WaitGroup::new(),
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

    /// Returns the address by which lists lead here ([`AddressSpace::at`]).
    pub(crate) fn expose(&self) -> u64 {
        core::ptr::from_ref(self).expose_provenance() as u64
    }

    /// Returns the address space at an exposed address.
    ///
    /// # Safety
    /// The address was exposed by a space of this machine, which does not end during `'a`.
    pub(crate) unsafe fn at<'a>(address: u64) -> Option<&'a Self> {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::with_exposed_provenance::<Self>(address as usize).as_ref() }
    }

    /// Whether the space has left the list of all spaces, because it ends: a walk that is in it leaves it.
    pub(crate) fn is_ending(&self) -> bool {
        self.place.is_listed.get() == 0
    }

    /// Returns its number, never reused.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.maps.tables.id
    }

    /// Returns the name of the space for the machine's TLBs, which contains the root table.
    pub fn id(&self) -> SpaceId {
        self.tables().space_id()
    }

    /// Returns the CPUs that run this space. A CPU inserts itself before it loads the root, and removes
    /// itself after it has dropped all translations.
    pub fn cpus(&self) -> &CpuSet {
        &self.tables().cpus
    }

    /// Returns the layout.
    pub fn layout(&self) -> &Layout {
        &self.maps.layout
    }

    /// Returns the fault policy.
    #[inline]
    pub fn policy(&self) -> Policy {
        self.maps.policy()
    }

    /// Changes the fault policy from now on. Safe at any moment: writers run the same protocol under every
    /// policy.
    pub fn set_policy(&self, policy: Policy) {
        self.maps.set_policy(policy);
    }

    /// Under `classic` and `vma-lock`: sets whether `munmap` keeps the mmap lock for writing until all pages
    /// are gone, as Linux did before 4.20, instead of downgrading it. For comparisons.
    pub fn hold_zaps(&self, held: bool) {
        match held {
            true => self.maps.note(Note::HELD_ZAPS),
            false => {
                self.maps.take_note(Note::HELD_ZAPS);
            }
        }
    }

    /// Adds a guest, which is told from now on what changes in the page tables.
    ///
    /// # Safety
    /// The hook stays in place, and its guest can be called by any thread, until the hook is removed
    /// ([`AddressSpace::remove_guest`]) and all sections that began before have ended. The hook is in no list.
    pub unsafe fn add_guest(&self, hook: &GuestHook<M>) {
        self.tables().guests.add(self.machine(), hook);
    }

    /// Removes a guest. Calls of its hook that have begun end with their sections.
    pub fn remove_guest(&self, hook: &GuestHook<M>) {
        self.tables().guests.remove(self.machine(), hook);
    }

    /// Returns the pages as guests see them.
    #[inline]
    pub fn host_pages(&self) -> HostPages<'_, M> {
        HostPages {
            tables: self.tables(),
        }
    }

    /// Returns the memory core to which the space belongs.
    pub fn memory(&self) -> &'static Memory<M> {
        self.maps.memory
    }

    #[inline]
    pub(crate) fn machine(&self) -> &'static M {
        self.memory().machine()
    }

    /// Returns the limits of what it may map.
    pub fn limits(&self) -> Limits {
        self.maps.limits()
    }

    /// Sets the limits of what it may map from now on.
    pub fn set_limits(&self, limits: &Limits) {
        self.maps.set_limits(limits);
    }

    /// Returns the totals of what is mapped. Beside writers they may show half of a change.
    pub fn totals(&self) -> VmStats {
        self.maps.totals()
    }

    /// Returns start and end of the heap ([`AddressSpace::brk`]), in bytes.
    pub fn heap(&self) -> (u64, u64) {
        self.maps.heap()
    }

    /// Returns its family's number: the number of a space, so that no other family has it.
    pub(crate) fn family(&self) -> u64 {
        self.place.family.get()
    }

    /// Puts a space that is not listed yet into the family of another.
    pub(crate) fn join_family(&self, other: &Self) {
        self.place.family.set(other.family());
    }

    pub(crate) fn all_pages(&self) -> Pages {
        self.maps.all_pages()
    }

    /// Returns the end of a byte range in whole pages, checked as `munmap` checks it.
    pub(crate) fn check_range(&self, address: u64, length: u64) -> Result<u64, Errno> {
        let end = self.layout().end;
        if !address.is_multiple_of(PAGE_SIZE) || length > end || address > end - length {
            return Err(Errno::EINVAL);
        }
        Ok(address + length.next_multiple_of(PAGE_SIZE))
    }
}
