//! What a fault prepares before it claims anything: a frame. `huge`: a huge page.
//!
//! The frame is zeroed for a fresh page or a table, and has any content for a copy. It is kept from one try
//! to the next, used for whatever that try needs, and freed if it was not needed. A fault that finds no
//! memory leaves its section, releases what reclamation defers, and tries again.

mod huge;

use faultless_frames::FrameSource;
use faultless_paging::{Access, Entry, Frame, SwapEntry, Value};
use faultless_swap::NotAdded;
use faultless_sync::{Mutant, mutant};
use faultless_trace::Counter;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::base::userfault::{Handler, Userfault};
use crate::fault::Outcome;
use crate::object::{MemoryObject, WaitKind};
use crate::swap::HeldSlot;
use crate::table::retry::{Blocker, Retry};
use crate::tree::mapping::ObjectRef;
use crate::tune::MEMORY_SEARCHES;
use huge::HeldHuge;

/// The origin of an access, and what the machine has said of it. The first two are `by_kernel`.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Origin {
    /// The program.
    Program = 0,
    /// The kernel, for the program.
    Kernel = 1,
    /// The program, by an instruction of which the machine was asked whether it writes what it reads: no.
    Reads,
    /// As above: yes.
    Writes,
}

impl Origin {
    /// Returns the access that a fault has to resolve.
    #[inline(always)]
    pub(crate) fn access<M: Machine>(self, access: Access) -> Access {
        match self {
            Origin::Writes if M::READS_MAY_WRITE => Access::Write,
            _ => access,
        }
    }
}

/// Whether a page was read from its slot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Read {
    No,
    Yes,
    Failed,
    /// It need not be: the page is in this frame, and no other entry names the slot.
    Kept(Frame),
}

/// What a fault waits for.
enum Missing<M: Machine> {
    /// A page that has to be read in: its object and its index.
    Page(MemoryObject<M>, u64),
    /// The handler of a userfaultfd.
    Handler(Report<M>),
}

/// A fault that a handler has to resolve.
pub(crate) struct Report<M: Machine> {
    /// Held, so that the fault can wait without a section.
    pub(crate) to: Userfault<M>,
    /// The registration that was found.
    pub(crate) handler: Handler,
    /// The kind of fault ([`crate::userfault`]).
    pub(crate) flags: u64,
}

/// The frame that a fault holds, and what it waits for.
pub(crate) struct FaultState<M: Machine, N> {
    memory: &'static Memory<M>,
    frame: Option<Frame>,
    is_zeroed: bool,
    searches: u32,
    huge: Option<HeldHuge<M>>,
    missing: Option<Missing<M>>,
    /// A use of the slot of a swapped page.
    slot: Option<HeldSlot>,
    /// Whether the frame holds the page of that slot.
    read: Read,
    /// Whether the page is copied, though it is in memory: its frame is needed by others.
    copies_kept: bool,
    /// Whether no access has asked for the page.
    pub(crate) is_ahead: bool,
    /// Whether the fault had to wait for I/O.
    pub(crate) has_waited: bool,
    /// Where the access comes from.
    pub(crate) origin: Origin,
    /// The trace of the fault.
    pub(crate) trail: N,
}

impl<M: Machine, N> FaultState<M, N> {
    #[inline]
    pub(crate) fn new(memory: &'static Memory<M>, trail: N, by_kernel: bool) -> Self {
        Self {
            trail,
            memory,
            frame: None,
            is_zeroed: true,
            searches: 0,
            huge: None,
            missing: None,
            slot: None,
            read: Read::No,
            copies_kept: false,
            is_ahead: false,
            has_waited: false,
            origin: match by_kernel {
                true => Origin::Kernel,
                false => Origin::Program,
            },
        }
    }

    /// Whether the kernel makes the access.
    #[inline]
    pub(crate) fn by_kernel(&self) -> bool {
        self.origin == Origin::Kernel
    }

    /// Returns a zeroed frame, still held here until [`FaultState::page_used`].
    #[inline]
    pub(crate) fn page(&mut self) -> Result<Frame, Retry> {
        self.forget_slot();
        if let Some(frame) = self.frame {
            if !self.is_zeroed && !mutant(Mutant::NotZeroedAgain) {
                self.zero(frame);
            }
            return Ok(frame);
        }
        let frame = self
            .memory
            .allocate_frame()
            .map_err(|_| Retry::Wait(Blocker::Memory))?;
        self.frame = Some(frame);
        Ok(frame)
    }

    #[cold]
    fn zero(&mut self, frame: Frame) {
        self.memory.machine().zero(frame);
        self.is_zeroed = true;
    }

    /// Returns a frame to copy a page to, still held here likewise.
    pub(crate) fn page_to_fill(&mut self) -> Result<Frame, Retry> {
        self.forget_slot();
        let frame = match self.frame {
            Some(frame) => frame,
            None => self
                .memory
                .allocate_frame_to_fill()
                .map_err(|_| Retry::Wait(Blocker::Memory))?,
        };
        self.frame = Some(frame);
        self.is_zeroed = false;
        Ok(frame)
    }

    /// Returns the frame that is held, with the content that the caller gave it.
    pub(crate) fn filled_page(&self) -> Option<Frame> {
        self.frame
    }

    /// As [`FaultState::page`], as a table.
    pub(crate) fn table(&mut self) -> Result<Frame, Retry> {
        let frame = self.page()?;
        self.memory.make_table(frame);
        Ok(frame)
    }

    /// Records that the frame now belongs to an entry or to an object.
    #[inline]
    pub(crate) fn page_used(&mut self) {
        self.frame = None;
        self.is_zeroed = true;
    }

    /// Marks the frame as no longer zeroed. It is still held here, but other CPUs may have found it in an
    /// object, and written it.
    #[cold]
    pub(crate) fn page_shown(&mut self) {
        self.is_zeroed = false;
    }

    /// Records that the try needs a page of an object that has to be read in.
    #[cold]
    pub(crate) fn needs_page(&mut self, backed: &ObjectRef, index: u64) -> Retry {
        // Nothing that others wait for is held while this waits; and what the last try has claimed itself is free again.
        if let Some(held) = &mut self.huge {
            held.claim = None;
        }
        let object = MemoryObject::of(self.memory, backed.pointer());
        self.missing = Some(Missing::Page(object, index));
        Retry::Wait(Blocker::Page)
    }

    /// Records that a handler has to resolve the fault, of a mapping found in this section.
    #[cold]
    pub(crate) fn needs_handler(&mut self, handler: Handler, flags: u64) -> Retry {
        let Some(to) = Userfault::of(self.memory, handler) else {
            return Retry::MappingChanged;
        };
        let report = Report { to, handler, flags };
        self.missing = Some(Missing::Handler(report));
        Retry::Wait(Blocker::Handler)
    }

    /// Returns what was recorded, once, and lets go of everything else: a handler in user mode may take long.
    pub(crate) fn take_report(&mut self) -> Option<Report<M>> {
        self.forget_slot();
        self.free_frame();
        self.free_huge();
        match self.missing.take()? {
            Missing::Handler(report) => Some(report),
            Missing::Page(..) => None,
        }
    }

    /// Reads in the page that the last try needed, or waits for the CPU that does. Returns how the fault ends
    /// if that fails.
    #[cold]
    pub(crate) fn wait_for_page(&mut self) -> Option<Outcome> {
        let Missing::Page(store, index) = self.missing.take()? else {
            return None;
        };
        match store.fill(index) {
            Ok(waited) => {
                self.has_waited |= waited == WaitKind::ForIo;
                None
            }
            Err(Errno::ENOMEM) => Some(Outcome::OutOfMemory),
            Err(_) => Some(Outcome::Bus),
        }
    }

    /// Returns the frame with the page of the slot that `entry` names, and named when it had this value.
    ///
    /// # Errors
    /// The page has to be read first. `Ok(None)`: it could not be read.
    pub(crate) fn swapped_page(
        &mut self,
        swapped: &SwapEntry,
        (entry, value): (&Entry, Value),
    ) -> Result<Option<Frame>, Retry> {
        let is_same = |slot: &HeldSlot| {
            slot.entry.device == swapped.device && slot.entry.slot == swapped.slot
        };
        if self.slot.as_ref().is_some_and(is_same) {
            return match self.read {
                Read::Yes => Ok(self.frame),
                Read::Kept(frame) => Ok(Some(frame)),
                Read::Failed => Ok(None),
                Read::No => Err(Retry::Wait(Blocker::Swap)),
            };
        }
        self.forget_slot();
        let slot = match self.memory.hold_slot(swapped) {
            Ok(slot) => slot,
            Err(NotAdded::Free) => return Err(Retry::EntryClaimed),
            // More than a billion entries name the slot.
            Err(NotAdded::TooMany) => return Ok(None),
        };
        // The slot may have been freed, and allocated again, before it was held. If the entry names it now, it has a
        // use of its own: its page is written, or being written.
        if entry.load() != value {
            self.memory.release_slot(slot);
            return Err(Retry::EntryClaimed);
        }
        (self.slot, self.read) = (Some(slot), Read::No);
        Err(Retry::Wait(Blocker::Swap))
    }

    /// Returns the slot that is held.
    pub(crate) fn held_slot(&self) -> Option<SwapEntry> {
        self.slot.as_ref().map(|slot| slot.entry)
    }

    /// Whether there is a frame for a swapped page. No memory is looked for.
    pub(crate) fn has_frame_to_fill(&mut self) -> bool {
        self.frame = self
            .frame
            .or_else(|| self.memory.allocate_frame_to_fill().ok());
        self.is_zeroed = false;
        self.frame.is_some()
    }

    /// Returns the slot that is held, and the frame for its page.
    pub(crate) fn slot_and_frame(&self) -> Option<(SwapEntry, Frame)> {
        self.held_slot().zip(self.frame)
    }

    /// Records that the frame holds the page of the slot, which no access has asked for.
    pub(crate) fn set_read_ahead(&mut self) {
        (self.read, self.is_ahead) = (Read::Yes, true);
    }

    /// Whether the swapped page was read from its slot for an access.
    pub(crate) fn was_read(&self) -> bool {
        self.read == Read::Yes
    }

    /// Whether the swapped page is not a copy, but the frame in which it was kept.
    pub(crate) fn is_kept(&self) -> bool {
        matches!(self.read, Read::Kept(_))
    }

    /// Takes the frame away in which the swapped page was kept. The entry is claimed. If another entry or fault needs
    /// the frame, the next try copies it.
    pub(crate) fn take_kept(&mut self) -> Result<(), Retry> {
        let is_taken = self
            .slot
            .as_ref()
            .is_some_and(|slot| self.memory.take_kept(slot));
        if is_taken {
            return Ok(());
        }
        (self.read, self.copies_kept) = (Read::No, true);
        Err(Retry::EntryClaimed)
    }

    /// Records that the frame, with a swapped page, now belongs to an entry.
    pub(crate) fn swapped_page_used(&mut self) {
        // A frame that was kept is not the one that is held here.
        if !self.is_kept() {
            self.page_used();
        }
        self.read = Read::No;
        self.forget_slot();
    }

    /// Finds the page of the slot that the last try needed, and reads it if it is on the device. Returns how the fault
    /// ends without memory.
    #[cold]
    pub(crate) fn read_swapped(&mut self) -> Option<Outcome> {
        let slot = self.slot.as_ref()?;
        if let Some(kept) = self.memory.await_write(slot)
            && !self.copies_kept
            && self.memory.is_used_by_one(slot)
        {
            self.read = Read::Kept(kept);
            return None;
        }
        let allocate = || self.memory.allocate_frame_to_fill().ok();
        let Some(frame) = self.frame.or_else(allocate) else {
            return Some(Outcome::OutOfMemory);
        };
        let result = self.memory.read_slot(slot, frame);
        (self.frame, self.is_zeroed) = (Some(frame), false);
        self.has_waited = true;
        self.read = match result {
            Ok(()) => Read::Yes,
            Err(_) => Read::Failed,
        };
        None
    }

    /// Frees what is held. As dropping it, but most faults hold nothing at their end, and then pay a look for that.
    #[inline(always)]
    pub(crate) fn end(self) {
        let holds = self.frame.is_some() || self.slot.is_some() || self.missing.is_some();
        match holds || self.huge.is_some() {
            true => drop(self),
            false => core::mem::forget(self),
        }
    }

    /// Frees the frame that is held.
    #[inline]
    fn free_frame(&mut self) {
        if let Some(frame) = self.frame.take() {
            let machine = self.memory.machine();
            machine.frames().free(machine.cpu(), frame);
        }
    }

    /// Drops the use of a slot whose page the frame no longer holds.
    #[inline]
    fn forget_slot(&mut self) {
        if self.slot.is_some() {
            self.release_slot();
        }
    }

    #[cold]
    #[inline(never)]
    fn release_slot(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.memory.release_slot(slot);
        }
    }

    /// Counts a major fault, if this one waited for I/O.
    #[inline]
    pub(crate) fn count_wait(&self) {
        if self.has_waited {
            self.memory.count(Counter::MajorFaults);
        }
    }

    /// Looks for memory harder. Whether another try is worth it: releasing deferred objects can require other
    /// CPUs to leave their sections. Called outside any section, so that this CPU defers nothing itself.
    #[cold]
    pub(crate) fn find_memory(&mut self) -> bool {
        self.searches += 1;
        self.memory.expedite();
        self.searches <= MEMORY_SEARCHES
    }
}

impl<M: Machine, N> Drop for FaultState<M, N> {
    #[inline]
    fn drop(&mut self) {
        self.forget_slot();
        self.free_frame();
        if self.huge.is_some() {
            self.free_huge();
        }
    }
}
