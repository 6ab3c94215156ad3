//! A guest, in a frame of its own, and what it needs from a machine.
//!
//! | field | writer | when |
//! | --- | --- | --- |
//! | `slots`, `leaving` | a change of the slots | see [`crate::slots`] |
//! | `changes` | a change of the slots; the dirty log, for reading | |
//! | `hook` | another guest of the same space | comes or goes |
//! | `rings` | [`Guest::use_rings`] | once |
//! | `lock` | faults that map, zaps, the dirty log | with the legacy MMU |
//! | `unflushed` | what takes pages away | see [`crate::flush`] |
//!
//! With the TDP MMU, a fault writes none of them, and no other part of this frame.

use core::ops::Deref;
use core::ptr::NonNull;

use faultless_mm::{
    AddressSpace, Errno, GuestCalls, GuestHook, HostPages, Machine, Memory, NoMemory,
};
use faultless_paging::{EntryFormat, Format, Frame, PAGE_SIZE, Page, Pages};
use faultless_sync::atomic::{AtomicU64, Ordering};
use faultless_sync::{Padded, RwLock, SpinLock};

use crate::format::SecondLevel;
use crate::slots::Snapshot;

/// A machine that runs guests.
pub trait GuestMachine: Machine {
    /// The format of second-level entries.
    type SecondLevel: SecondLevel;

    /// Flushes the translations of the guest that was made with `tag`. On return no vCPU uses one that it has loaded before.
    ///
    /// Called with the entries changed, perhaps with interrupts off and with claims held, so that other CPUs may be waiting
    /// in [`faultless_sync::Wait::relax`]. It must not park.
    fn flush_guest(&self, tag: u64);
}

/// A pointer that keeps an address space in existence: `Arc<OwnedSpace<M>>`, or the like.
pub trait HostSpace<M: Machine>: Send + Sync + 'static {
    /// Returns the address space.
    fn space(&self) -> &AddressSpace<M>;
}

impl<M: Machine, P> HostSpace<M> for P
where
    P: Deref<Target: AsRef<AddressSpace<M>>> + Send + Sync + 'static,
{
    #[inline]
    fn space(&self) -> &AddressSpace<M> {
        (**self).as_ref()
    }
}

/// How a guest's memory works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Entries are found by walking the tables, without a lock (KVM: the TDP MMU). Off: by a reverse map, under a lock.
    pub tdp_mmu: bool,
    /// Faults that only restore access are repaired without a look at the slots and the host (KVM: the fast page fault). Off,
    /// they are mapped like others, which is for comparisons.
    pub fast_page_fault: bool,
    /// When stores begin to be logged, huge entries are split, rather than when they are written (KVM: the same).
    pub eager_page_split: bool,
    /// Whether a page was used is seen by hardware's accessed bit. Off, the rights are taken away, and the next access faults
    /// (KVM: `eptad=0`).
    pub accessed_bits: bool,
    /// Whether a page was written is seen by hardware's dirty bit, so that logging costs the guest no fault. Off, write access is
    /// taken away, as KVM does without write logging by hardware (PML); so it is, too, in a guest with rings.
    pub dirty_bits: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tdp_mmu: true,
            fast_page_fault: true,
            eager_page_split: true,
            accessed_bits: true,
            dirty_bits: false,
        }
    }
}

/// A guest: memory slots over an address space, and second-level page tables.
pub struct Guest<M: GuestMachine, S: HostSpace<M>> {
    pub(crate) memory: &'static Memory<M>,
    space: S,
    /// The frame that holds this.
    frame: Frame,
    pub(crate) root: Frame,
    pub(crate) tag: u64,
    pub(crate) options: Options,
    /// The frame of the present snapshot ([`crate::slots`]).
    pub(crate) slots: AtomicU64,
    /// The frame of a slot that has left the snapshot, while its pages are zapped; or 0.
    pub(crate) leaving: AtomicU64,
    hook: GuestHook<M>,
    /// Whether vCPUs have rings ([`crate::log::ring`]): 0 or 1.
    rings: AtomicU64,
    /// Held to change the slots, or to keep them.
    pub(crate) changes: Padded<RwLock>,
    /// The lock of the legacy MMU ([`crate::mmu::legacy`]).
    pub(crate) lock: Padded<SpinLock<()>>,
    /// Operations that have taken pages away and may not have flushed them ([`crate::flush`]).
    pub(crate) unflushed: Padded<AtomicU64>,
}

/// A guest that the caller owns. Only [`OwnedGuest::destroy`] frees it: if this is dropped, its frames are lost.
pub struct OwnedGuest<M: GuestMachine, S: HostSpace<M>> {
    guest: NonNull<Guest<M, S>>,
}

// SAFETY: a guest is shared through atomics and locks.
unsafe impl<M: GuestMachine, S: HostSpace<M>> Send for OwnedGuest<M, S> {}
// SAFETY: as above.
unsafe impl<M: GuestMachine, S: HostSpace<M>> Sync for OwnedGuest<M, S> {}

impl<M: GuestMachine, S: HostSpace<M>> Deref for OwnedGuest<M, S> {
    type Target = Guest<M, S>;

    #[inline]
    fn deref(&self) -> &Guest<M, S> {
        // SAFETY: written in `new`, and valid until `destroy`.
        unsafe { self.guest.as_ref() }
    }
}

impl<M: GuestMachine, S: HostSpace<M>> OwnedGuest<M, S> {
    /// Makes a guest without slots over an address space. `tag` is for [`GuestMachine::flush_guest`].
    ///
    /// # Errors
    /// [`NoMemory`]; nothing is allocated then.
    pub fn new(space: S, tag: u64, options: Options) -> Result<Self, NoMemory> {
        const { assert!(size_of::<Guest<M, S>>() <= PAGE_SIZE as usize) };
        let memory = space.space().memory();
        let mut frames = [Frame(0); 3];
        for number in 0..frames.len() {
            frames[number] = memory.allocate_table().inspect_err(|_| {
                frames[..number]
                    .iter()
                    .for_each(|&frame| memory.retire_table(frame));
            })?;
        }
        let [frame, root, slots] = frames;
        // SAFETY: a zeroed frame that only this function uses.
        unsafe { Snapshot::begin(memory.machine(), slots) };
        let guest = memory.machine().pointer(frame).cast::<Guest<M, S>>();
        let content = Guest {
            memory,
            space,
            frame,
            root,
            tag,
            options,
            slots: AtomicU64::new(slots.0),
            leaving: AtomicU64::new(0),
            hook: GuestHook::new(
                GuestCalls {
                    changed: changed::<M, S>,
                    age: age::<M, S>,
                },
                guest.cast(),
            ),
            rings: AtomicU64::new(0),
            changes: Padded(RwLock::new()),
            lock: Padded(SpinLock::new(())),
            unflushed: Padded(AtomicU64::new(0)),
        };
        // SAFETY: a frame that only this function uses, large enough and aligned.
        unsafe { guest.write(content) };
        let owned = Self { guest };
        // SAFETY: the guest stays in its frame, which is retired after the hook has left the list.
        unsafe { owned.space().add_guest(&owned.hook) };
        Ok(owned)
    }

    /// Frees everything. No vCPU runs the guest any more, and none of its operations is in progress.
    pub fn destroy(self) {
        let guest: &Guest<M, S> = &self;
        let memory = guest.memory;
        guest.space().remove_guest(&guest.hook);
        guest.retire_tables();
        let slots = guest.slots_now();
        slots.iter().for_each(|body| guest.retire_body(body));
        memory.retire_table(Frame(slots.frame));
        let frame = guest.frame;
        // SAFETY: only calls of the hook that have begun may look at the guest, and they do not look at this field.
        let space = unsafe { core::ptr::read(&raw const guest.space) };
        memory.retire_table(frame);
        drop(space);
    }
}

/// Called when the host has changed pages.
fn changed<M: GuestMachine, S: HostSpace<M>>(
    guest: NonNull<()>,
    host: &HostPages<'_, M>,
    pages: Pages,
) {
    // SAFETY: the guest of a hook, which is retired after it has left the list.
    let guest = unsafe { guest.cast::<Guest<M, S>>().as_ref() };
    guest.follow(host, pages);
}

/// Called to know whether the guest has used a page of the host.
fn age<M: GuestMachine, S: HostSpace<M>>(guest: NonNull<()>, page: Page, clears: bool) -> bool {
    // SAFETY: as above.
    let guest = unsafe { guest.cast::<Guest<M, S>>().as_ref() };
    guest.age(page, clears)
}

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    pub(crate) const FORMAT: Format = M::SecondLevel::FORMAT;

    #[inline]
    pub(crate) fn machine(&self) -> &'static M {
        self.memory.machine()
    }

    /// Returns the address space that has the guest's memory.
    #[inline]
    pub fn space(&self) -> &AddressSpace<M> {
        self.space.space()
    }

    pub(crate) fn frame(&self) -> Frame {
        self.frame
    }

    /// Returns the root of the second-level tables.
    pub fn root(&self) -> Frame {
        self.root
    }

    /// Logs the pages that are written in rings of the vCPUs from now on, rather than by slot. Each fault that may be one for a store
    /// then has a ring ([`crate::GuestFault::ring`]). Called before the guest's first fault.
    ///
    /// # Errors
    /// `EINVAL` if it does so already.
    pub fn use_rings(&self) -> Result<(), Errno> {
        let _changes = self.changes.write(self.machine());
        // Relaxed: the caller makes it known to the vCPUs, as it does the guest.
        match self.has_rings() {
            true => Err(Errno::EINVAL),
            false => {
                self.rings.store(1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Whether vCPUs have rings.
    #[inline]
    pub fn has_rings(&self) -> bool {
        self.rings.load(Ordering::Relaxed) != 0
    }

    /// Whether hardware's dirty bits are the marks of the log. A ring needs a fault.
    #[inline]
    pub(crate) fn has_dirty_bits(&self) -> bool {
        self.options.dirty_bits && !self.has_rings()
    }

    /// Returns the host's address of a guest-physical address, if a slot has it.
    pub fn host_address(&self, address: u64) -> Option<u64> {
        let _section = self.memory.enter();
        let body = self.slots_now();
        let body = body.find(address / PAGE_SIZE)?;
        Some(body.host_of(address / PAGE_SIZE) * PAGE_SIZE + address % PAGE_SIZE)
    }
}
