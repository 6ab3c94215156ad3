//! Moves a page to another frame while it is in use.
//!
//! The reverse map finds where the page is mapped: [`crate::rmap::anon`] for anonymous pages, the list of
//! mappings for the pages of an object ([`crate::object`]). Each entry is *claimed as moving*: not present, so
//! that no hardware uses it, and otherwise unchanged (Linux: migration entries). A fault that meets one waits
//! as for any claim, without a lock. So do unmaps, changes of protection, moves and forks.
//!
//! When all entries are claimed, and the page's count of uses is that of the claims, the page has no other
//! user: no other mapping, no pin, no copy in progress. The same step sets the count to 0, so that no use can
//! be added. Then each space is flushed, the page is copied, and each entry is published with the new frame and
//! its other bits unchanged.
//!
//! Any obstacle releases the claims, and the page stays: another claim, a mapping that changes, a pin, a
//! mapping that was not found. So only flushes are waited for while claims are held, and it is safe to hold
//! several (rule R9).
//!
//! # Why each step is correct
//!
//! * Each claim is validated: the page's mapping is live after the claim's barrier, and no fork has yet to copy
//!   its table (rule R1). A fork, unmap or move at work there has therefore waited for the claim, or the claim
//!   is withdrawn. It may be any mapping, because nothing is decided from it.
//! * A table is not freed while an entry in it is claimed, so the claims are found again. No space ends: the
//!   list of spaces is locked, and a space that ends leaves the objects' lists, and then that list
//!   ([`crate::OwnedSpace::destroy`]).
//! * An object's page has left its slot before the entries are looked at. A fault that has counted the page
//!   finds that out, and takes the count back ([`crate::object`]).
//! * Stores through TLBs end with the flush, before the copy (rule R3).
//!
//! *Writes*: the entries, both frames' descriptors, the list's lock.
//!
//! *Models*: loom `rmap/migrate.rs`, shuttle `rmap/migrate.rs`.

use faultless_frames::{Flags, FrameSource, NoMemory};
use faultless_paging::{Entry, Frame, PAGE_SIZE, Page, Pages, Walk};
use faultless_sync::reclaim::Section;
use faultless_sync::{Backoff, Mutant, fence_after_rmw, mutant};
use faultless_trace::Counter;

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::base::notes::Note;
use crate::object::{MemoryObject, Moving};
use crate::rmap::anon::AllSpaces;
use crate::space::AddressSpace;
use crate::table::Tables;
use crate::tree::SlotState;

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

/// Moves pages, one at a time.
pub struct Mover<M: Machine> {
    memory: &'static Memory<M>,
    /// The claims of the present page: pairs of a space and a page.
    places: Frame,
}

/// The largest number of claims of one page.
const MOST: usize = PAGE_SIZE as usize / size_of::<[u64; 2]>();

/// The claims of a page.
struct Claims<'a, M: Machine> {
    mover: &'a Mover<M>,
    count: usize,
}

impl<M: Machine> Mover<M> {
    /// Returns a mover.
    ///
    /// # Errors
    /// [`NoMemory`]: it needs a frame.
    pub fn new(memory: &'static Memory<M>) -> Result<Self, NoMemory> {
        let places = memory.allocate_frame_to_fill()?;
        Ok(Self { memory, places })
    }

    /// Moves the page in `from` to `to`, a frame that the caller has allocated from the machine's source.
    /// Afterwards `from` is the caller's.
    ///
    /// As when a frame is freed ([`FrameSource::free`]), the caller guarantees that `to` is its own. A page in
    /// use is detected and refused; a table or a free frame is not.
    ///
    /// # Errors
    /// The reason why it was not moved. Nothing has changed.
    pub fn migrate(&mut self, from: Frame, to: Frame) -> Result<(), NotMoved> {
        let machine = self.memory.machine();
        let spaces = self.memory.keep_spaces();
        let interrupts = machine.interrupts_off();
        // The flags of an unused frame say what it was last.
        let used = machine.frames().find(from).filter(|d| d.is_used());
        let flags = used.map_or(Flags::NONE, |descriptor| descriptor.flags());
        let (is_file, is_anonymous) = (flags.has(Flags::FILE), flags.has(Flags::ANONYMOUS));
        let zero = machine.frames().zero_frame();
        let place = machine.frames().find(to).filter(|d| !d.is_used());
        let mut store = None;
        let result = if from == zero || !(is_file || is_anonymous) {
            Err(NotMoved::NoPage)
        } else if place.is_none() || to == from || to == zero {
            Err(NotMoved::NoPlace)
        } else if is_file {
            self.migrate_file_page(from, to, &mut store)
        } else {
            self.migrate_anonymous_page(&spaces, from, to)
        };
        machine.interrupts_restore(interrupts);
        drop(spaces);
        // This may be the object's last holder.
        drop(store);
        if result.is_ok() {
            self.memory.count(Counter::Migrations);
        }
        result
    }

    fn migrate_file_page(
        &self,
        from: Frame,
        to: Frame,
        store: &mut Option<MemoryObject<M>>,
    ) -> Result<(), NotMoved> {
        let moving = Moving::begin(self.memory, from).map_err(|held| {
            *store = held;
            NotMoved::Busy
        })?;
        let mut claims = Claims::new(self);
        let found = moving.try_for_each_place(|space, page| claims.claim(space, page, from));
        let result = claims.finish(found, from, to, true);
        *store = Some(moving.end(if result.is_ok() { to } else { from }));
        result
    }

    fn migrate_anonymous_page(
        &self,
        spaces: &AllSpaces<'_, M>,
        from: Frame,
        to: Frame,
    ) -> Result<(), NotMoved> {
        let descriptor = self.memory.machine().frames().descriptor(from);
        // The owner and the index were written by separate stores, and may not belong together. Then the page
        // is not found.
        let (owner, index) = descriptor.owner();
        let is_relative =
            |space: &AddressSpace<M>| space.number() == owner || space.family() == owner;
        let mut claims = Claims::new(self);
        let all_found =
            |claims: &Claims<'_, M>| claims.count as u64 >= u64::from(descriptor.map_count());
        let mut found = spaces.try_for_each(|space| {
            if !is_relative(space) || all_found(&claims) || index >= space.layout().end / PAGE_SIZE
            {
                return Ok(());
            }
            claims.claim(space, index, from)
        });
        if found.is_ok() && !all_found(&claims) {
            found = spaces.try_for_each(|space| {
                if !is_relative(space) || all_found(&claims) || !space.maps.has_note(Note::MOVED) {
                    return Ok(());
                }
                claims.claim_anywhere(space, from)
            });
        }
        claims.finish(found, from, to, false)
    }
}

impl<M: Machine> Drop for Mover<M> {
    fn drop(&mut self) {
        let machine = self.memory.machine();
        machine.frames().free(machine.cpu(), self.places);
    }
}

impl<'a, M: Machine> Claims<'a, M> {
    fn new(mover: &'a Mover<M>) -> Self {
        Self { mover, count: 0 }
    }

    fn place(&self, number: usize) -> *mut [u64; 2] {
        let places = self.mover.memory.machine().pointer(self.mover.places);
        places.as_ptr().cast::<[u64; 2]>().wrapping_add(number)
    }

    /// Claims the entry of `page` if it maps `frame`.
    fn claim(&mut self, space: &AddressSpace<M>, page: u64, frame: Frame) -> Result<(), NotMoved> {
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
        let is_live = matches!(
            unsafe { space.tree().find(page).word.content() },
            SlotState::Live(_)
        );
        let is_valid = is_live && space.tables().is_in_place(entry, page, section);
        if !is_valid && !mutant(Mutant::MappingNotValidated) {
            entry.set(value);
            return Err(NotMoved::Busy);
        }
        let place = [space.expose(), page];
        // SAFETY: inside the frame, which is this mover's.
        unsafe { self.place(self.count).write(place) };
        self.count += 1;
        Ok(())
    }

    /// Moves the page if `found` says that all its entries were looked for, and it has no other user. Releases
    /// the claims.
    fn finish(
        self,
        found: Result<(), NotMoved>,
        from: Frame,
        to: Frame,
        is_held: bool,
    ) -> Result<(), NotMoved> {
        let machine = self.mover.memory.machine();
        let source = machine.frames();
        let (old, maps) = (source.descriptor(from), self.count as u32);
        let result = found.and_then(|()| {
            let is_all = (maps != 0 || is_held) && old.freeze(maps, is_held);
            match is_all || mutant(Mutant::MovedThoughUsed) {
                true => Ok(()),
                false => Err(NotMoved::Busy),
            }
        });
        if result.is_ok() {
            if !mutant(Mutant::MovedWithoutFlush) {
                self.for_each(|space, page| space.tables().flush_moving(page));
            }
            machine.copy(from, to);
            source.descriptor(to).become_page(old, maps, is_held);
            if let Some(page) = self.only_page().filter(|_| !is_held) {
                // It may have moved with its table; its descriptor then has the old page number.
                source.descriptor(to).move_to(page);
            }
        }
        let frame = if result.is_ok() { to } else { from };
        self.for_each(|space, page| space.tables().publish_moved(page, frame));
        result
    }

    /// Returns the page number of all claims, if it is the same in all spaces.
    fn only_page(&self) -> Option<u64> {
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
