//! Setting the slots of a range under an edit, and counting the change.
//!
//! *Writes*: the tree's slots, mappings' page counts, and the account; under the edit lock.

use core::ptr::NonNull;

use faultless_paging::Pages;

use crate::base::machine::Machine;
use crate::lock::Edit;
use crate::lock::Mappings;
use crate::lock::departing::UnmapGuard;
use crate::lock::notify::Unmapped;
use crate::tree::account::AccountDelta;
use crate::tree::mapping::{Attributes, Mapping};
use crate::tree::{Neighbours, Run, SlotValue, Subtree};

/// Mappings that have lost their last page, chained by their links.
#[must_use]
pub(crate) struct DeadMappings(u64);

impl DeadMappings {
    pub(crate) fn none() -> Self {
        Self(0)
    }

    /// Returns all of them, and leaves none.
    pub(crate) fn take(&mut self) -> Self {
        Self(core::mem::take(&mut self.0))
    }

    /// Appends `others` behind these, which are few.
    pub(crate) fn append(&mut self, others: Self) {
        let mut last = self.0;
        if last == 0 {
            *self = others;
            return;
        }
        loop {
            let mapping = core::ptr::with_exposed_provenance::<Mapping>(last as usize);
            // SAFETY: chained and not retired yet.
            let link = unsafe { &*mapping }.link();
            if link.get() == 0 {
                return link.set(others.0);
            }
            last = link.get();
        }
    }
}

impl<M: Machine> Mappings<M> {
    /// Sets the slots of all `pages` to `word`, and retires mappings that have lost their last page. All
    /// changes of what is mapped are made in this file, except stack growth, and are counted.
    pub(crate) fn set_range(&self, edit: &mut Edit<'_, M>, pages: Pages, word: SlotValue) {
        let near = edit.around(pages);
        self.set_range_below(edit, &near, pages, word);
    }

    /// The same for pages below a node around them ([`Subtree::around`]).
    pub(crate) fn set_range_below(
        &self,
        edit: &mut Edit<'_, M>,
        near: &Subtree,
        pages: Pages,
        word: SlotValue,
    ) {
        let beside = near.beside_below(pages);
        let orphans = self.replace_range(edit, near, pages, beside, near.runs(pages), word);
        self.retire_orphans(orphans, edit.departure());
    }

    /// The same, except that the caller retires the mappings that have lost their last page. `runs` are those
    /// of `pages`, and `beside` the neighbours.
    pub(crate) fn replace_range(
        &self,
        edit: &mut Edit<'_, M>,
        near: &Subtree,
        pages: Pages,
        beside: Neighbours,
        runs: impl Iterator<Item = Run>,
        word: SlotValue,
    ) -> DeadMappings {
        let is_divided = self.is_divided();
        // SAFETY: the edit lock keeps what the tree holds from being retired.
        if let Some(mapping) = unsafe { word.mapping() } {
            mapping.add_pages(pages.len(), is_divided);
        }
        // A mapping with pages in several lock domains may be retired by another writer, which subtracts its
        // last page, before the slots here are filled. It must not be released before readers that find it
        // through these slots have left (`Grace::Going`). So from the first page that is subtracted, the read
        // section keeps the mapping, for this writer too.
        let _section = is_divided.then(|| self.memory.enter());
        let mut dead = 0;
        let mut had_guard = false;
        let mut unmapped = Unmapped::default();
        // SAFETY: as above.
        let new = unsafe { word.mapping() }.map(Mapping::attributes);
        // SAFETY: as above.
        let mut tally = unsafe { AccountDelta::new(pages, beside) };
        for run in runs {
            // SAFETY: as above.
            let Some(old) = (unsafe { run.word.mapping() }) else {
                continue;
            };
            tally.see(run.pages, old.attributes());
            if old.attributes().backed.is_some() {
                depart(edit, old.attributes(), new, word);
            }
            had_guard |= old.grows_down();
            unmapped.see(old.attributes());
            if old.remove_pages(run.pages.len(), is_divided) {
                old.link().set(dead);
                dead = core::ptr::from_ref(old).expose_provenance() as u64;
            }
        }
        self.count_change(edit, &tally.end(new));
        match word.is_empty() {
            true => edit.fill(pages, word),
            false => edit.fill_below(near, pages, word),
        }
        if had_guard {
            edit.guard_gone(pages.start);
        }
        self.notify_unmap(&unmapped);
        if let Some(new) = new {
            self.notify_map(pages, new);
        }
        DeadMappings(dead)
    }

    /// Takes mappings to which no slot leads any more out of their objects' lists, and retires them. Those of
    /// devices are kept with `departure`, and retired later.
    #[inline]
    pub(crate) fn retire_orphans(&self, dead: DeadMappings, departure: &UnmapGuard<'_, M>) {
        if dead.0 != 0 {
            self.retire_chain(dead, departure);
        }
    }

    fn retire_chain(&self, DeadMappings(mut dead): DeadMappings, departure: &UnmapGuard<'_, M>) {
        while let Some(old) = NonNull::new(core::ptr::with_exposed_provenance_mut::<Mapping>(
            dead as usize,
        )) {
            // SAFETY: unlinked just now, and retired only here.
            let mapping = unsafe { old.as_ref() };
            dead = mapping.link().get();
            self.memory.unlink(mapping);
            match mapping.attributes().flags.device {
                true => departure.keep(old),
                false => self.memory.retire_mapping(old),
            }
        }
    }

    /// Sets the slots of `pages`, where nothing is mapped, to `word`, and counts the change. `beside` are the
    /// neighbours.
    pub(crate) fn set_free_range(
        &self,
        edit: &mut Edit<'_, M>,
        near: &Subtree,
        pages: Pages,
        word: SlotValue,
        beside: Neighbours,
    ) {
        // SAFETY: made or found by the caller under this edit.
        if let Some(mapping) = unsafe { word.mapping() } {
            mapping.add_pages(pages.len(), self.is_divided());
            // SAFETY: as above.
            let tally = unsafe { AccountDelta::new(pages, beside) };
            self.count_change(edit, &tally.end(Some(mapping.attributes())));
            edit.fill_below(near, pages, word);
            self.notify_map(pages, mapping.attributes());
        }
    }

    /// Returns the first run that ends behind `page`, cut to `limit`, for a writer that is not editing.
    pub(crate) fn run_in(&self, page: u64, limit: u64) -> Option<Run> {
        self.tree.run_in(self.memory, page, limit)
    }

    /// Returns the first run of `pages` that is mapped, likewise.
    pub(crate) fn mapped_run(&self, pages: Pages) -> Option<Run> {
        self.tree.mapped_run(self.memory, pages)
    }

    /// Returns the first pages from `page` on that are one mapping, and its attributes.
    pub(crate) fn mapped_in(&self, page: u64, limit: u64) -> Option<(Pages, Attributes)> {
        let _section = self.memory.enter();
        let mut at = page;
        loop {
            let run = self.tree.next_until(at, limit)?;
            // SAFETY: read in this section.
            if let Some(mapping) = unsafe { run.word.mapping() } {
                return Some((run.pages, *mapping.attributes()));
            }
            at = run.pages.end;
        }
    }

    /// Whether nothing is mapped in `pages`, for a writer that is not editing.
    pub(crate) fn is_unmapped(&self, pages: Pages) -> bool {
        let _section = self.memory.enter();
        self.tree.is_unmapped(pages)
    }

    /// Shows those of `pages` that are changing as live, so that faults there proceed.
    pub(crate) fn publish_live(&self, edit: &mut Edit<'_, M>, pages: Pages) {
        for run in self.tree.runs(pages) {
            if run.word != run.word.settled() {
                edit.fill(run.pages, run.word.settled());
            }
        }
    }
}

/// Begins a pending unmap of a mapping of a memory object, unless its slots will show the same pages. They
/// will be set to `word`, of which the mapping has the `new` attributes.
#[inline(never)]
fn depart<M: Machine>(
    edit: &Edit<'_, M>,
    old: &Attributes,
    new: Option<&Attributes>,
    word: SlotValue,
) {
    // The same pages are found as before.
    let is_same = new.is_some_and(|new| !word.is_replacing() && new.backed == old.backed);
    if !is_same {
        edit.departure().begin(old);
    }
}
