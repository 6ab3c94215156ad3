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
use faultless_paging::Frame;
use faultless_sync::{Mutant, mutant};
use faultless_trace::Counter;

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::object::radix::PageSlot;
use crate::object::{MemoryObject, Moving, ObjectInner};
use crate::rmap::anon::AllSpaces;
use crate::rmap::claims::{Claims, NotMoved, Places, Purpose};

/// Moves pages, one at a time.
pub struct Mover<M: Machine> {
    memory: &'static Memory<M>,
    places: Places<M>,
}

impl<M: Machine> Mover<M> {
    /// Returns a mover.
    ///
    /// # Errors
    /// [`NoMemory`]: it needs a frame.
    pub fn new(memory: &'static Memory<M>) -> Result<Self, NoMemory> {
        let places = Places::new(memory, memory.allocate_frame_to_fill()?);
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
        let is_pooled = machine.frames().is_pooled(from);
        let result = if from == zero || is_pooled || !(is_file || is_anonymous) {
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
        let mut claims = Claims::new(&self.places, Purpose::Move);
        let found = moving.try_for_each_place(|space, page| claims.claim(space, page, from));
        let cache = Some(moving.store.cache());
        let result = finish(&claims, found, (from, to), cache);
        let place = if result.is_ok() { to } else { from };
        *store = Some(moving.end(PageSlot::Page(place)));
        result
    }

    fn migrate_anonymous_page(
        &self,
        spaces: &AllSpaces<'_, M>,
        from: Frame,
        to: Frame,
    ) -> Result<(), NotMoved> {
        let mut claims = Claims::new(&self.places, Purpose::Move);
        let found = claims.claim_anonymous(spaces, from);
        finish(&claims, found, (from, to), None)
    }
}

/// Moves the page if `found` says that all its entries were looked for, and it has no other user. Releases the claims.
fn finish<M: Machine>(
    claims: &Claims<'_, M>,
    found: Result<(), NotMoved>,
    (from, to): (Frame, Frame),
    cache: Option<&ObjectInner>,
) -> Result<(), NotMoved> {
    let machine = claims.memory().machine();
    let source = machine.frames();
    let is_held = cache.is_some();
    let result = found.and_then(|()| claims.freeze(from, is_held));
    if result.is_ok() {
        cache.inspect(|cache| claims.memory().ends_whole(cache, from));
        if !mutant(Mutant::MovedWithoutFlush) {
            claims.flush();
        }
        machine.copy(from, to);
        let (old, new) = (source.descriptor(from), source.descriptor(to));
        new.become_page(old, claims.count() as u32, is_held);
        if let Some(page) = claims.only_page().filter(|_| !is_held) {
            // It may have moved with its table; its descriptor then has the old page number.
            new.move_to(page);
        }
    }
    claims.release(if result.is_ok() { to } else { from });
    result
}
