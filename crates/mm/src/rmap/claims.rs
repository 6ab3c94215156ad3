//! The claims of all entries of a page, wherever it is mapped.
//!
//! An entry is *claimed as moving*: not present, so that no hardware uses it, and otherwise unchanged (Linux:
//! migration entries). A fault that meets one waits as for any claim, without a lock.
//!
//! * Each claim is validated: the page's mapping is live after the claim's barrier, and no fork has yet to copy
//!   its table (rule R1).
//! * Only flushes are waited for while claims are held, so it is safe to hold several (rule R9).
//! * No space ends meanwhile: the caller holds the list of spaces. A table is not freed while an entry in it is
//!   claimed, so the claims are found again.
//! * For reclaim, an entry that was used is not claimed: its accessed bit is cleared, and the page stays. A page in a
//!   locked mapping stays in memory.
//!
//! *Writes*: the entries, and the frame with their places.

use faultless_frames::{Descriptor, FrameSource};
use faultless_paging::{Entry, Frame, PAGE_SIZE, Page, Pages, Value, Walk};
use faultless_sync::reclaim::Section;
use faultless_sync::{Backoff, Mutant, fence_after_rmw, mutant};

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::base::notes::Note;
use crate::rmap::anon::AllSpaces;
use crate::space::AddressSpace;
use crate::table::Tables;
use crate::tree::SlotState;
use crate::tree::mapping::Locked;

/// The reason why a page was not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotMoved {
    /// The frame is free, is used for something that cannot be moved, or is not one of the machine's.
    NoPage,
    /// The target frame is not one of the machine's, is the same, is the shared zero page, or has a page
    /// already.
    NoPlace,
    /// The page is used in a way that forbids a move now. It is pinned, or an operation is at work on one of
    /// its entries. Or it is mapped where it was not found, or more often than can be remembered.
    Busy,
}

/// What a page is claimed for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It moves to another frame.
    Move,
    /// It leaves memory, unless it was used.
    Reclaim,
    /// It leaves memory, because a program wants it to.
    PageOut,
}

/// A frame in which the places of a page's claims are remembered.
pub(crate) struct Places<M: Machine> {
    memory: &'static Memory<M>,
    /// Pairs of a space and a page.
    frame: Frame,
}

/// The largest number of claims of one page.
const MOST: usize = PAGE_SIZE as usize / size_of::<[u64; 2]>();

/// The claims of a page.
pub(crate) struct Claims<'a, M: Machine> {
    places: &'a Places<M>,
    purpose: Purpose,
    /// Entries that show the page.
    seen: usize,
    /// Those that are claimed.
    count: usize,
}

impl<M: Machine> Places<M> {
    pub(crate) fn memory(&self) -> &'static Memory<M> {
        self.memory
    }

    /// Makes places of a frame of the caller.
    pub(crate) fn new(memory: &'static Memory<M>, frame: Frame) -> Self {
        Self { memory, frame }
    }
}

impl<M: Machine> Drop for Places<M> {
    fn drop(&mut self) {
        let machine = self.memory.machine();
        machine.frames().free_reserved(machine.cpu(), self.frame);
    }
}

impl<'a, M: Machine> Claims<'a, M> {
    /// Returns no claims.
    pub(crate) fn new(places: &'a Places<M>, purpose: Purpose) -> Self {
        Self {
            places,
            purpose,
            seen: 0,
            count: 0,
        }
    }

    pub(crate) fn memory(&self) -> &'static Memory<M> {
        self.places.memory
    }

    fn place(&self, number: usize) -> *mut [u64; 2] {
        let places = self.memory().machine().pointer(self.places.frame);
        places.as_ptr().cast::<[u64; 2]>().wrapping_add(number)
    }

    /// Claims the entry of `page` if it maps `frame`.
    ///
    /// # Errors
    /// [`NotMoved::Busy`]: another operation is at work there.
    pub(crate) fn claim(
        &mut self,
        space: &AddressSpace<M>,
        page: u64,
        frame: Frame,
    ) -> Result<(), NotMoved> {
        let section = space.memory().enter();
        match space.tables().descend(Page(page), &section) {
            Walk::Leaf { entry, .. } => self.claim_entry(space, entry, page, frame, &section),
            Walk::Missing { .. } => Ok(()),
            Walk::Busy | Walk::Huge { .. } => Err(NotMoved::Busy),
        }
    }

    /// Claims every entry of a space that maps `frame`.
    #[cold]
    fn claim_anywhere(&mut self, space: &AddressSpace<M>, frame: Frame) -> Result<(), NotMoved> {
        let section = space.memory().enter();
        let mut result = Ok(());
        let all = Pages::of_bytes(0..space.layout().end);
        space.tables().for_each_entry(all, &mut |entry, page| {
            if result.is_ok() {
                result = self.claim_entry(space, entry, page, frame, &section);
            }
        });
        result
    }

    fn claim_entry(
        &mut self,
        space: &AddressSpace<M>,
        entry: &Entry,
        page: u64,
        frame: Frame,
        section: &Section<'_>,
    ) -> Result<(), NotMoved> {
        let format = AddressSpace::<M>::FORMAT;
        let value = loop {
            let value = entry.load();
            if value == 0 || format.frame(value) != frame {
                return Ok(());
            }
            if format.is_moving(value) {
                // A claim of this move: no other one runs now.
                return Ok(());
            }
            if !format.is_claimed(value) && !format.has_page(value) {
                // Its slot happens to have the frame's number.
                return Ok(());
            }
            if format.is_claimed(value) || self.count == MOST {
                return Err(NotMoved::Busy);
            }
            if self.purpose == Purpose::Reclaim && format.is_used(value) {
                if entry.replace(value, format.unused(value)).is_ok() {
                    space.tables().age_guests(page, true);
                    self.seen += 1;
                    return Ok(());
                }
                continue;
            }
            if self.purpose == Purpose::Reclaim && space.tables().age_guests(page, true) {
                self.seen += 1;
                return Ok(());
            }
            // Fails if hardware has set a bit, or another CPU was faster.
            if entry.replace(value, format.moving(value)).is_ok() {
                break value;
            }
        };
        if !mutant(Mutant::ClaimWithoutFence) {
            // Partner: the fence of rule R1 in a writer that changes a mapping.
            fence_after_rmw();
        }
        // SAFETY: in the caller's section.
        let is_live = match unsafe { space.tree().find(page).word.content() } {
            SlotState::Live(mapping) => {
                self.purpose == Purpose::Move || mapping.attributes().flags.locked == Locked::No
            }
            _ => false,
        };
        let is_valid = is_live && space.tables().is_in_place(entry, page, section);
        if !is_valid && !mutant(Mutant::MappingNotValidated) {
            entry.set(value);
            return Err(NotMoved::Busy);
        }
        let place = [space.expose(), page];
        // SAFETY: inside the frame, which is used for these claims alone.
        unsafe { self.place(self.count).write(place) };
        self.count += 1;
        self.seen += 1;
        Ok(())
    }

    /// Claims every entry of an anonymous page.
    ///
    /// # Errors
    /// [`NotMoved::Busy`]. What was claimed so far is to be released.
    pub(crate) fn claim_anonymous(
        &mut self,
        spaces: &AllSpaces<'_, M>,
        frame: Frame,
    ) -> Result<(), NotMoved> {
        // The owner and the index were written by separate stores, and may not belong together. Then the page
        // is not found.
        let (_, index) = self.descriptor(frame).owner();
        self.claim_at(spaces, frame, index)?;
        match self.has_all(frame) {
            true => Ok(()),
            false => self.claim_moved(spaces, frame),
        }
    }

    fn descriptor(&self, frame: Frame) -> &'static Descriptor {
        self.memory().machine().frames().descriptor(frame)
    }

    /// Whether every entry of an anonymous page was seen.
    pub(crate) fn has_all(&self, frame: Frame) -> bool {
        self.seen as u64 >= u64::from(self.descriptor(frame).map_count())
    }

    /// Claims the entries of an anonymous page in all spaces of its family, where they have this page number.
    ///
    /// # Errors
    /// As [`Claims::claim_anonymous`].
    pub(crate) fn claim_at(
        &mut self,
        spaces: &AllSpaces<'_, M>,
        frame: Frame,
        page: u64,
    ) -> Result<(), NotMoved> {
        let (owner, _) = self.descriptor(frame).owner();
        spaces.try_for_each(|space| {
            let is_inside = page < space.layout().end / PAGE_SIZE;
            if !is_relative(space, owner) || self.has_all(frame) || !is_inside {
                return Ok(());
            }
            self.claim(space, page, frame)
        })
    }

    /// Claims the entries of an anonymous page in spaces of its family that have moved pages, wherever they are. Takes
    /// time by all pages of these spaces.
    ///
    /// # Errors
    /// As [`Claims::claim_anonymous`].
    #[cold]
    pub(crate) fn claim_moved(
        &mut self,
        spaces: &AllSpaces<'_, M>,
        frame: Frame,
    ) -> Result<(), NotMoved> {
        let (owner, _) = self.descriptor(frame).owner();
        spaces.try_for_each(|space| {
            let has_moved = space.maps.has_note(Note::MOVED);
            if !is_relative(space, owner) || self.has_all(frame) || !has_moved {
                return Ok(());
            }
            self.claim_anywhere(space, frame)
        })
    }

    /// Removes all uses of the page, if they are the claimed entries and, with `is_held`, the page cache's. No
    /// operation can map, pin or find the page any more.
    ///
    /// # Errors
    /// [`NotMoved::Busy`]: it has other uses, or was used.
    pub(crate) fn freeze(&self, frame: Frame, is_held: bool) -> Result<(), NotMoved> {
        let descriptor = self.memory().machine().frames().descriptor(frame);
        let is_claimed = (self.count != 0 || is_held) && self.seen == self.count;
        let is_all = is_claimed && descriptor.freeze(self.count as u32, is_held);
        match is_all || mutant(Mutant::MovedThoughUsed) {
            true => Ok(()),
            false => Err(NotMoved::Busy),
        }
    }

    /// Flushes the page wherever it is claimed.
    pub(crate) fn flush(&self) {
        self.for_each(|space, page| space.tables().flush_moving(page));
    }

    /// Releases the claims: the entries show `frame`.
    pub(crate) fn release(&self, frame: Frame) {
        self.for_each(|space, page| space.tables().publish_moved(page, frame));
    }

    /// Releases the claims: `value` returns what an entry has from now on, given its value before the claim.
    pub(crate) fn replace(&self, mut value: impl FnMut(&AddressSpace<M>, Value) -> Value) {
        self.for_each(|space, page| {
            space.tables().with_moving(page, |entry, before| {
                entry.set(value(space, before));
            });
        });
    }

    /// Returns the number of claims.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the page number of all claims, if it is the same in all spaces.
    pub(crate) fn only_page(&self) -> Option<u64> {
        let mut page = None;
        let mut is_one = true;
        self.for_each(|_, at| is_one &= *page.get_or_insert(at) == at);
        page.filter(|_| is_one)
    }

    fn for_each(&self, mut visit: impl FnMut(&AddressSpace<M>, u64)) {
        for number in 0..self.count {
            // SAFETY: written by `claim_entry`.
            let [space, page] = unsafe { self.place(number).read() };
            // SAFETY: exposed by `claim_entry`; no space ends meanwhile.
            if let Some(space) = unsafe { AddressSpace::at(space) } {
                visit(space, page);
            }
        }
    }
}

/// Whether a space is the owner of a page, or of the family that owns it.
fn is_relative<M: Machine>(space: &AddressSpace<M>, owner: u64) -> bool {
    space.number() == owner || space.family() == owner
}

impl<M: Machine> Tables<M> {
    /// Releases the claim of a page that was moved to `frame`.
    fn publish_moved(&self, page: u64, frame: Frame) {
        self.with_moving(page, |entry, before| {
            // Nothing else writes a claimed entry. Release: the page's content and its descriptor were written
            // before.
            entry.set(Self::FORMAT.with_frame(before, frame));
        });
    }

    /// Flushes a page that is claimed as moving.
    fn flush_moving(&self, page: u64) {
        self.with_moving(page, |_, before| self.flush_page(Page(page), before));
    }

    /// Calls `act` with the entry of a page that is claimed as moving, and with its value before the claim.
    fn with_moving(&self, page: u64, act: impl FnOnce(&Entry, u64)) {
        let mut backoff = Backoff::new();
        let section = self.memory.enter();
        loop {
            match self.descend(Page(page), &section) {
                Walk::Leaf { entry, value, .. } if Self::FORMAT.is_moving(value) => {
                    return act(entry, Self::FORMAT.settled(value));
                }
                // Another operation has claimed the table, to check whether it is empty.
                _ => backoff.turn(self.machine()),
            }
        }
    }
}
