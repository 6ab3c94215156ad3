//! The memory slots of a guest: an immutable snapshot, which a change replaces.
//!
//! * A fault finds its slot in the snapshot without a lock, in a section. After its claim it checks that the snapshot is the
//!   same. A change publishes its snapshot, fences, and looks at the entries of what it has changed, waiting for claims
//!   (rule R1).
//! * Snapshots and slots are frames that are retired. A snapshot that a section has found stays until its end, so no other
//!   snapshot takes its frame meanwhile.
//! * A slot that is deleted or moved *leaves*: until its pages are zapped and flushed, the host finds it beside the snapshot, and
//!   no fault maps one of its pages for the slot that it has become.
//! * Changes exclude each other by `Guest::changes`.
//!
//! *Writes*: `Guest::slots` and `Guest::leaving`, by a change. Faults read them.

pub(crate) mod set;
pub(crate) mod slot;
pub(crate) mod words;

use faultless_paging::Frame;
use faultless_sync::atomic::Ordering;
use faultless_sync::{Mutant, mutant};

use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::slots::slot::SlotBody;

/// The largest number of slots.
pub(crate) const MOST_SLOTS: usize = 509;

/// All slots, in a frame of its own.
#[repr(C)]
pub(crate) struct Snapshot {
    count: usize,
    /// The frames of the slots' bodies, in the order of their addresses.
    frames: [u64; MOST_SLOTS],
}

impl Snapshot {
    /// Makes an empty snapshot in a frame.
    ///
    /// # Safety
    /// Only the caller uses the frame, during `'a`.
    pub(crate) unsafe fn begin<'a, M: GuestMachine>(machine: &M, frame: Frame) -> &'a mut Self {
        let place = machine.pointer(frame).cast::<Self>();
        // SAFETY: the caller's promise; a frame is large enough and aligned.
        unsafe {
            (&raw mut (*place.as_ptr()).count).write(0);
            &mut *place.as_ptr()
        }
    }
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Snapshot>() <= faultless_paging::PAGE_SIZE as usize);

/// A snapshot that was found in a section.
pub(crate) struct Slots<'s, M: GuestMachine> {
    machine: &'s M,
    /// The frame, by which it is compared.
    pub(crate) frame: u64,
    snapshot: &'s Snapshot,
}

impl<'s, M: GuestMachine> Slots<'s, M> {
    fn frames(&self) -> &'s [u64] {
        &self.snapshot.frames[..self.snapshot.count]
    }

    fn body(&self, frame: u64) -> &'s SlotBody {
        let body = self.machine.pointer(Frame(frame)).cast::<SlotBody>();
        // SAFETY: written before the snapshot was published, and retired after it.
        unsafe { body.as_ref() }
    }

    /// Returns all slots, in the order of their addresses.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'s SlotBody> + '_ {
        self.frames().iter().map(|&frame| self.body(frame))
    }

    /// Returns the slot of a guest's page.
    #[inline]
    pub(crate) fn find(&self, page: u64) -> Option<&'s SlotBody> {
        let frames = self.frames();
        let after = frames.partition_point(|&frame| self.body(frame).pages.start <= page);
        let body = self.body(*frames.get(after.checked_sub(1)?)?);
        (page < body.pages.end).then_some(body)
    }

    /// Returns the slot with a number.
    pub(crate) fn by_number(&self, number: u32) -> Option<&'s SlotBody> {
        self.iter().find(|body| body.number == number)
    }
}

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Returns the slots as they are now. The caller is in a section, or excludes changes, during `'s`.
    #[inline]
    pub(crate) fn slots_now<'s>(&'s self) -> Slots<'s, M> {
        // Acquire: pairs with the release in `publish`.
        let frame = self.slots.load(Ordering::Acquire);
        let snapshot = self.machine().pointer(Frame(frame)).cast::<Snapshot>();
        Slots {
            machine: self.machine(),
            frame,
            // SAFETY: filled in before it was published, and retired: it stays during the caller's section.
            snapshot: unsafe { snapshot.as_ref() },
        }
    }

    /// Returns the slot that leaves, if there is one. Called after [`Guest::slots_now`], in the same section: `None` means that
    /// the slots that left before that snapshot are zapped and flushed.
    #[inline]
    pub(crate) fn leaving(&self) -> Option<&SlotBody> {
        // Acquire: pairs with the release at the end of a slot's zap.
        let frame = self.leaving.load(Ordering::Acquire);
        if frame == 0 || mutant(Mutant::LeavingNotFollowed) {
            return None;
        }
        let body = self.machine().pointer(Frame(frame)).cast::<SlotBody>();
        // SAFETY: retired after the word was cleared.
        Some(unsafe { body.as_ref() })
    }
}
