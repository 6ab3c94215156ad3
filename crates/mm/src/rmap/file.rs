//! The reverse map of a memory object: all its mappings, and so every entry that may show one of its pages.
//!
//! * A mapping enters the list when it is made, before any slot leads to it. It leaves the list with its last
//!   page.
//! * A mapping has no bounds (`crate::tree`). It gives the address space, and the difference between page and
//!   index; that space's tree says what is really mapped there. So nothing is set up when pages are added, and
//!   mappings are cut, merged and moved without the list.
//! * A walk holds the list's lock only from one mapping to the next: a *cursor* keeps its place.
//! * The mapping to which pages move (`mremap`, `fork`) is behind every cursor when they leave their old place.
//!   A new mapping is put at the end, and an existing one is put there again. So is a neighbour's mapping that
//!   is lent to where pages are.
//! * An address space that ends waits for the walks that are in it.
//!
//! *Writes*: the list's lock and the neighbours' links when mappings are made and freed; the count of the space
//! that a walk is in, and the word that all spaces share, if that space waits.
//!
//! *Models*: loom `rmap/{truncate,truncate_writers}.rs`, shuttle `rmap/truncate.rs`.

use core::ops::Range;

use faultless_frames::Flags;
use faultless_paging::{Entry, PAGE_SIZE, Pages};
use faultless_sync::reclaim::Section;
use faultless_sync::{Backoff, cond_resched};

use crate::base::machine::Machine;
use crate::base::notes::Note;
use crate::object::Moving;
use crate::object::mappings::expose;
use crate::object::{MemoryObject, ObjectInner};
use crate::space::AddressSpace;
use crate::tree::mapping::{Mapping, ObjectLinks};
use crate::tree::{SlotState, SlotValue};

/// Returns the address space of a mapping, and the index that page 0 of it would have; `None` for a cursor.
///
/// # Safety
/// The space stays during `'a`: the list's lock is held, or the space waits for this walk. It ends only
/// after its mappings have left the list.
unsafe fn space_of<'a, M: Machine>(links: &ObjectLinks) -> Option<(&'a AddressSpace<M>, u64)> {
    // SAFETY: exposed by `allocate_mapping`; the caller's promise.
    let space = unsafe { AddressSpace::at(links.space.get()) }?;
    Some((space, links.first.get()))
}

/// A mapping that a walk has reached.
struct Stop<'a, M: Machine> {
    space: &'a AddressSpace<M>,
    first: u64,
}

impl<M: Machine> MemoryObject<M> {
    /// Zaps and flushes every entry that shows one of `pages` in any address space; with `copies`, private
    /// copies too.
    pub(crate) fn unmap(&self, pages: Range<u64>, copies: bool) {
        self.for_each_mapping(|space, first| {
            unmap_file(space, self.cache(), first, &pages, copies);
            cond_resched(self.memory.machine());
        });
    }

    /// Calls `visit` for every mapping, with its address space and the index that page 0 would have. Mappings
    /// that are added meanwhile are visited as well.
    pub(crate) fn for_each_mapping(&self, visit: impl Fn(&AddressSpace<M>, u64)) {
        let cursor = ObjectLinks::new();
        let mut list = self.cache().writers.mappings.lock(self.memory.machine());
        // SAFETY: it stays until `advance` has taken it out.
        unsafe { list.insert(expose(&cursor), None) };
        drop(list);
        while let Some(stop) = self.advance(&cursor) {
            visit(stop.space, stop.first);
            // From here on the space may be freed, so it parks on a word that is not its own.
            let visitors = &stop.space.place.visitors;
            visitors.leave_for(&self.memory.visits_over, self.memory.machine());
        }
    }

    /// Moves a cursor behind the next mapping. The space of that then waits for this walk. Returns `None` if
    /// there is no further mapping; the cursor is then out of the list.
    fn advance(&self, cursor: &ObjectLinks) -> Option<Stop<'_, M>> {
        let mut list = self.cache().writers.mappings.lock(self.memory.machine());
        loop {
            // SAFETY: the cursor is in the list, and what is there stays under the lock.
            let links = unsafe {
                let next = list.next(&cursor.hook);
                list.remove(&cursor.hook);
                let next = next?;
                list.insert(&cursor.hook, Some(next));
                ObjectLinks::of(next)
            };
            // SAFETY: under the lock; then the space waits for the visitor that is counted here.
            if let Some((space, first)) = unsafe { space_of(links) } {
                space.place.visitors.enter();
                return Some(Stop { space, first });
            }
        }
    }
}

/// Removes this space's mappings from the lists of their objects, and waits for the walks that are in it. The
/// space ends.
pub(crate) fn leave_objects<M: Machine>(space: &AddressSpace<M>) {
    if !space.maps.has_note(Note::OBJECTS) {
        return;
    }
    space.tree().for_each_value(&mut |word| {
        // SAFETY: the caller alone uses the space.
        if let Some(mapping) = unsafe { word.mapping() } {
            space.memory().unlink(mapping);
        }
    });
    // No new walk enters.
    let memory = space.memory();
    space
        .place
        .visitors
        .wait_on(&memory.visits_over, memory.machine());
}

/// Zaps the entries that show pages `indices` of an object, where page 0 would have the index `first`. Holds no
/// lock, except where it meets a writer: what is found is validated after its claim.
fn unmap_file<M: Machine>(
    space: &AddressSpace<M>,
    cache: &ObjectInner,
    first: u64,
    indices: &Range<u64>,
    copies: bool,
) {
    let end = space.layout().end / PAGE_SIZE;
    let (mut at, end) = pages_of(first, indices, end);
    let mut hold: Option<(Pages, _)> = None;
    let mut backoff = Backoff::new();
    while at < end {
        let (part, is_live) = {
            let _section = space.memory().enter();
            let Some(run) = space.tree().next_until(at, end) else {
                return;
            };
            let is_same = |mapping: &Mapping| {
                mapping
                    .attributes()
                    .backed
                    .is_some_and(|b| b.is(cache.any(), first))
            };
            // SAFETY: read in this section.
            match unsafe { run.word.content() } {
                SlotState::Live(mapping) if is_same(mapping) => (run.pages, true),
                SlotState::Changing(mapping) if is_same(mapping) => (run.pages, false),
                _ => {
                    at = run.pages.end;
                    continue;
                }
            }
        };
        at = part.start;
        if is_live {
            let stopped = discard_file(space, part, cache, first, copies);
            if stopped > at {
                (hold, backoff) = (None, Backoff::new());
                at = stopped;
                continue;
            }
        }
        // A writer is at work there, and waits for nothing that is held here. The hold makes the next writer
        // wait for this walk: otherwise a writer that never pauses would keep it here forever.
        match &hold {
            Some((held, _)) if held.start <= at && at < held.end => {
                backoff.rest(space.machine());
            }
            // What was held may have been unmapped before it was held, or something else is mapped there.
            _ => {
                drop(hold.take());
                hold = Some((part, space.maps.hold_range(part)));
            }
        }
    }
}

/// Whether a page belongs to a live mapping of an object, with the index `first` for page 0. Called inside a
/// section.
pub(crate) fn is_file_page<M: Machine>(
    space: &AddressSpace<M>,
    page: u64,
    cache: &ObjectInner,
    first: u64,
) -> bool {
    // SAFETY: inside the caller's section.
    match unsafe { space.tree().find(page).word.content() } {
        SlotState::Live(mapping) => {
            let backed = mapping.attributes().backed;
            backed.is_some_and(|b| b.is(cache.any(), first))
        }
        _ => false,
    }
}

/// Discards those of `pages` that are pages of an object, and with `copies` private ones too. They have to
/// belong to a live mapping of the object after their claim. Returns the page to continue from: the first where
/// they do not, or the end.
pub(crate) fn discard_file<M: Machine>(
    space: &AddressSpace<M>,
    pages: Pages,
    cache: &ObjectInner,
    first: u64,
    copies: bool,
) -> u64 {
    let is_meant = |value: u64| {
        copies && value != AddressSpace::<M>::FORMAT.marker()
            || AddressSpace::<M>::FORMAT.has_page(value)
                && space
                    .tables()
                    .counted(value)
                    .is_some_and(|descriptor| descriptor.flags().has(Flags::FILE))
    };
    // Decided again once the claim keeps the frame from being reused.
    let is_valid = |entry: &Entry, page: u64, value, section: &Section<'_>| {
        is_meant(value)
            && is_file_page(space, page, cache, first)
            && space.tables().is_in_place(entry, page, section)
    };
    let is_of_object = |word: SlotValue| {
        // SAFETY: read inside the section of the discard.
        let mapping = unsafe { word.mapping() }.filter(|_| word.is_live());
        let backed = mapping.and_then(|mapping| mapping.attributes().backed);
        backed.is_some_and(|b| b.is(cache.any(), first))
    };
    let is_huge_valid = |span: Pages| space.tree().all_slots(span, is_of_object);
    space
        .tables()
        .discard_valid(pages, &is_meant, (&is_valid, &is_huge_valid))
}

/// Returns the pages before `end` that have the indices, where page 0 has `first`.
fn pages_of(first: u64, indices: &Range<u64>, end: u64) -> (u64, u64) {
    // The difference is signed: small files at high addresses, and the reverse.
    let page = |index: u64| {
        let page = i128::from(index) - i128::from(first.cast_signed());
        page.clamp(0, i128::from(end)) as u64
    };
    let pages = Pages::new(page(indices.start), page(indices.end));
    (pages.start, pages.end)
}

impl<M: Machine> Moving<M> {
    /// Calls `visit` with every space and page where the page may be mapped, until that fails. It runs under
    /// the list's lock and may not wait.
    pub(crate) fn try_for_each_place<E>(
        &self,
        mut visit: impl FnMut(&AddressSpace<M>, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let memory = self.store.memory;
        let list = self.store.cache().writers.mappings.lock(memory.machine());
        // SAFETY: under the lock, and mappings stay in the list until they are unlinked.
        let mut next = unsafe { list.first() };
        while let Some(hook) = next {
            // SAFETY: as above.
            if let Some((space, first)) = unsafe { space_of::<M>(ObjectLinks::of(hook)) } {
                let page = self.index.wrapping_sub(first);
                if page < space.layout().end / PAGE_SIZE {
                    visit(space, page)?;
                }
            }
            // SAFETY: as above.
            next = unsafe { list.next(hook) };
        }
        Ok(())
    }
}
