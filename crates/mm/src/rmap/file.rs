//! The reverse map of a store: every mapping that leads to it, and so every entry that
//! may show one of its pages.
//!
//! A mapping enters the list when it is made, before any slot leads to it, and leaves it
//! when its last page does. It has no bounds (`crate::tree`); what it adds is the address
//! space and the difference between page and index, and what is really mapped there is
//! found in that space's tree. So nothing is set up when pages come, and mappings are
//! cut, merged and moved without the list.
//!
//! A walk holds the list's lock only from one mapping to the next: a *cursor* keeps its
//! place. What pages are carried to (`mremap`, `fork`) is behind every cursor when they are
//! taken from where they were: a new mapping is put last, and one that was there is put
//! last once more; so is one that becomes a neighbour's to pages that are there. An address space waits, when it ends, for walks that are in it.
//!
//! Written lines: the list's lock and the neighbours' links when mappings come and go; the count of the space that
//! a walk is in, and the word that all spaces share, if that space waits.

use core::ops::Range;
use core::ptr::NonNull;

use faultless_paging::{PAGE_SIZE, Pages};
use faultless_sync::atomic::{Local, Ordering};
use faultless_sync::{Backoff, Mutant, check_park, cond_resched, mutant};

use crate::base::list::Hook;
use crate::base::machine::Machine;
use crate::object::{MemoryObject, ObjectInner};
use crate::space::memory::Memory;
use crate::space::{AddressSpace, Body, Note};
use crate::tree::SlotState;
use crate::tree::mapping::{Mapping, ObjectRef};

/// In the count of walks that are in a space: it is parked until they are not.
const AWAITED: u32 = 1 << 31;

/// Turns of spinning before it parks.
const SPIN: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 64 };

/// A mapping's place in its store's list. Read and written under the list's lock.
#[repr(C)]
pub(crate) struct ObjectLinks {
    hook: Hook,
    /// The address space; 0 of a cursor, and of a mapping that is in no list.
    space: Local,
    /// The index that page 0 of the space would have.
    first: Local,
}

impl ObjectLinks {
    pub(crate) const fn new() -> Self {
        Self {
            hook: Hook::new(),
            space: Local::new(0),
            first: Local::new(0),
        }
    }

    /// Those that a hook of the list belongs to.
    ///
    /// # Safety
    /// The hook is in the list of a store's mappings, whose lock is held.
    pub(crate) unsafe fn of(hook: &Hook) -> &ObjectLinks {
        // SAFETY: it is the first field, and was exposed with the whole.
        unsafe { &*core::ptr::with_exposed_provenance(core::ptr::from_ref(hook).addr()) }
    }

    /// The address space of a mapping, and the index that page 0 of it would have; `None` of
    /// a cursor. The space stays while the list's lock is held: it ends only after its
    /// mappings have left.
    pub(crate) fn space<M: Machine>(
        &self,
        memory: &'static Memory<M>,
    ) -> Option<(AddressSpace<M>, u64)> {
        let body = core::ptr::with_exposed_provenance_mut::<Body>(self.space.get() as usize);
        // SAFETY: it is in the list of a store, whose lock is held.
        let space = unsafe { AddressSpace::at(memory, NonNull::new(body)?) };
        Some((space, self.first.get()))
    }
}

impl<M: Machine> Memory<M> {
    /// Enters a mapping, which nothing leads to yet, into the list of its store.
    pub(crate) fn link(&self, mapping: &Mapping, backed: &ObjectRef, space: &AddressSpace<M>) {
        let links = mapping.links();
        space.note(Note::STORES);
        links
            .space
            .set(space.body().as_ptr().expose_provenance() as u64);
        links.first.set(backed.first);
        let mut list = backed.cache().writers.mappings.lock(self.machine());
        // SAFETY: it stays until `unlink`.
        unsafe { list.push(expose(links)) };
        if mapping.attributes().writes_store() {
            let writable = &backed.cache().writers.writable;
            writable.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Puts a mapping of the tree, if it has a store, last in the store's list: pages are
    /// about to be carried to where it leads, or it is about to lead to some.
    pub(crate) fn link_again(&self, mapping: &Mapping) {
        let Some(backed) = &mapping.attributes().backed else {
            return;
        };
        if mutant(Mutant::NotLinkedAgain) {
            return;
        }
        let mut list = backed.cache().writers.mappings.lock(self.machine());
        // SAFETY: in the list, as every mapping of a tree is.
        unsafe {
            list.remove(&mapping.links().hook);
            list.push(&mapping.links().hook);
        }
    }

    /// Takes a mapping out of its store's list, if it is in it.
    pub(crate) fn unlink(&self, mapping: &Mapping) {
        let Some(backed) = &mapping.attributes().backed else {
            return;
        };
        let links = mapping.links();
        let mut list = backed.cache().writers.mappings.lock(self.machine());
        if links.space.get() != 0 {
            links.space.set(0);
            // SAFETY: it is in the list.
            unsafe { list.remove(&links.hook) };
            if mapping.attributes().writes_store() {
                let writable = &backed.cache().writers.writable;
                writable.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// The hook, by which the whole can be found again.
fn expose(links: &ObjectLinks) -> &Hook {
    let _ = core::ptr::from_ref(links).expose_provenance();
    &links.hook
}

/// A mapping that a walk has come to.
struct Stop<M: Machine> {
    space: AddressSpace<M>,
    first: u64,
}

impl<M: Machine> MemoryObject<M> {
    /// Takes away whatever shows one of `pages` in any address space, and flushes it;
    /// with `copies`, private copies too.
    pub(crate) fn unmap(&self, pages: Range<u64>, copies: bool) {
        self.for_each_mapping(|space, first| {
            space.unmap_file(self.cache(), first, &pages, copies);
            cond_resched(self.memory.machine());
        });
    }

    /// Calls `visit` for every mapping, with its address space and the index that page 0
    /// would have. What comes meanwhile is visited as well.
    pub(crate) fn for_each_mapping(&self, visit: impl Fn(&AddressSpace<M>, u64)) {
        let cursor = ObjectLinks::new();
        let mut list = self.cache().writers.mappings.lock(self.memory.machine());
        // SAFETY: it stays until `advance` has taken it out.
        unsafe { list.insert(expose(&cursor), None) };
        drop(list);
        while let Some(stop) = self.advance(&cursor) {
            visit(&stop.space, stop.first);
            // Release: pairs with the acquire in `AddressSpace::await_visitors`.
            if stop.space.visitors.fetch_sub(1, Ordering::Release) == AWAITED | 1
                && !mutant(Mutant::VisitorWakesNobody)
            {
                // From here on the space may be gone: the word is not its own.
                let turn = self.memory.visits_over();
                // Release: pairs with the acquire there; who has read the new value sees none of us.
                turn.fetch_add(1, Ordering::Release);
                self.memory.machine().wake(turn, u32::MAX);
            }
        }
    }

    /// Moves a cursor behind the next mapping, whose space then waits for us; `None`, and
    /// the cursor is out of the list, when there is none.
    fn advance(&self, cursor: &ObjectLinks) -> Option<Stop<M>> {
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
            if let Some((space, first)) = links.space(self.memory) {
                space.visitors.fetch_add(1, Ordering::Relaxed);
                return Some(Stop { space, first });
            }
        }
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Takes this space's mappings out of the lists of their stores, and waits for
    /// walks that are here. The space ends.
    pub(crate) fn leave_stores(&self) {
        if !self.has_note(Note::STORES) {
            return;
        }
        let mut at = 0;
        while let Some(run) = self.run_in(at, crate::tree::PAGES) {
            at = run.pages.end;
            // SAFETY: the caller alone uses the space.
            if let Some(mapping) = unsafe { run.word.mapping() } {
                self.memory.unlink(mapping);
            }
        }
        self.await_visitors();
    }

    /// Waits until no walk is here any more; none comes. Who walks may be parked: he waits for a writer, or has
    /// been woken on the very CPU that waits here.
    #[allow(clippy::absurd_extreme_comparisons, reason = "models do not spin")]
    fn await_visitors(&self) {
        let mut backoff = Backoff::new();
        let turn = self.memory.visits_over();
        loop {
            // Acquire, both: of the releases at the end of a visit. The turn first: who changes it is not here then.
            let before = turn.load(Ordering::Acquire);
            let now = self.visitors.load(Ordering::Acquire);
            if now & !AWAITED == 0 {
                return;
            }
            if backoff.turns() < SPIN {
                backoff.turn(self.machine());
            } else if now & AWAITED == 0 {
                self.visitors.fetch_or(AWAITED, Ordering::Relaxed);
            } else {
                check_park();
                self.machine().park(turn, before);
            }
        }
    }

    /// Takes away what shows pages `indices` of a store, where page 0 would have the
    /// index `first`. No lock is held, but where a writer is met: what is found is validated
    /// after its claim.
    fn unmap_file(&self, cache: &ObjectInner, first: u64, indices: &Range<u64>, copies: bool) {
        let end = self.layout.end / PAGE_SIZE;
        let (mut at, end) = pages_of(first, indices, end);
        let mut hold: Option<(Pages, _)> = None;
        let mut backoff = Backoff::new();
        while at < end {
            let (part, is_live) = {
                let _section = self.memory.enter();
                let Some(run) = self.tree.next_until(at, end) else {
                    return;
                };
                let is_same = |mapping: &Mapping| {
                    mapping
                        .attributes()
                        .backed
                        .is_some_and(|b| b.is(cache, first))
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
                let stopped = self.discard_file(part, cache, first, copies);
                if stopped > at {
                    (hold, backoff) = (None, Backoff::new());
                    at = stopped;
                    continue;
                }
            }
            // A writer is at work there, which waits for nothing that is held here. The next
            // one waits for us, or one that never rests would keep the walk here for ever.
            match &hold {
                Some((held, _)) if held.start <= at && at < held.end => {
                    backoff.rest(self.machine());
                }
                // What was held may have been unmapped before it was; or there is something else.
                _ => {
                    drop(hold.take());
                    hold = Some((part, self.hold_range(part)));
                }
            }
        }
    }

    /// Whether a page belongs to a live mapping of a store, as a walk of its mappings
    /// has it. Inside a section.
    pub(crate) fn is_file_page(&self, page: u64, cache: &ObjectInner, first: u64) -> bool {
        // SAFETY: inside the caller's section.
        match unsafe { self.tree.find(page).word.content() } {
            SlotState::Live(mapping) => {
                let backed = mapping.attributes().backed;
                backed.is_some_and(|b| b.is(cache, first))
            }
            _ => false,
        }
    }
}

/// The pages before `end` that have the indices, where page 0 has `first`.
fn pages_of(first: u64, indices: &Range<u64>, end: u64) -> (u64, u64) {
    // The difference is one of signed numbers: small files high up, and the reverse.
    let page = |index: u64| {
        let page = i128::from(index) - i128::from(first.cast_signed());
        page.clamp(0, i128::from(end)) as u64
    };
    let pages = Pages::new(page(indices.start), page(indices.end));
    (pages.start, pages.end)
}
