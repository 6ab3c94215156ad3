//! `fork`: a second address space with the same mappings, in which every page is
//! shared until one of the two writes it.
//!
//! The child is a snapshot (rule R10): of two writes by another thread it has the
//! first if it has the second. Fork goes over the mappings, lowest first, and
//! shows each as *changing* from when it comes to it until everything is
//! copied and flushed, so that faults on what is behind it wait, while what lies
//! ahead, and whoever reads pages that are there, goes on. A store that needs no
//! fault can still reach a page behind it through a TLB; that page is then the
//! child's, too. After the one flush none can, and from then on it does not
//! matter when which mapping is shown live: whatever is written from now on
//! is written to a copy.
//!
//! A page that somebody has pinned is not shared, or the parent's next store would go to
//! another page than the one that is pinned. The child gets a frame of its own, and the content
//! after the flush, when no store of the program can reach the page: the snapshot holds
//! for it, too. The parent's entry lets stores through again before the mapping is live.
//!
//! Who waits: the range lock for writing is held all the while, so that other
//! writers of the parent wait. Nothing in the parent is changed that could not
//! stay: a fork that fails leaves pages that are marked shared without being
//! so, which the next write of each finds out.
//!
//! Written lines: every slot of the parent's tree; its entries that were writable;
//! every page's descriptor.

use faultless_frames::{Flags, FrameSource, NoMemory};
use faultless_paging::{
    ENTRIES, Entry, Frame, Gather, LEVELS, PAGE_SIZE, Page, Pages, Table, Walk, walk,
};
use faultless_sync::Backoff;
use faultless_sync::atomic::Ordering;
use faultless_trace::{Counter, Kind};

use crate::account::Sum;
use crate::errno::Errno;
use crate::machine::Machine;
use crate::mapping::{self, Attributes, Locked};
use crate::range::RangeLock;
use crate::space::{AddressSpace, Note};
use crate::tree::{Copier, PAGES, STRETCH, Word};

impl<M: Machine> AddressSpace<M> {
    /// A new address space with the same layout, limits, policy, heap and mappings, of which
    /// none is locked; the pages of both are shared until they are written.
    ///
    /// # Errors
    /// `ENOMEM` when memory is short, or a mapping is larger than memory. Nothing has changed.
    pub fn fork(&self) -> Result<Self, Errno> {
        let start = self.trace_start();
        let result = self.copy();
        self.trace_result(Kind::Fork, start, (0, self.layout.end), result)
    }

    fn copy(&self) -> Result<Self, Errno> {
        let child = Self::unlisted(self.memory, self.policy(), self.layout)?;
        child.join_family(self);
        let result = {
            let lock = self.lock_range(Pages::of_bytes(0..self.layout.end));
            for (to, from) in child.brk.iter().zip(self.brk.iter()) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            lock.edit().bar_growth();
            child.begin_clearings(self);
            let mut fork = Fork::new(self, &child, &lock);
            let result = self
                .tree
                .copy_to(&child.tree, self.memory, &mut fork)
                .and_then(|()| fork.copy_pending());
            self.flush(&mut fork.gather);
            fork.copy_pinned();
            self.tree.show_live();
            lock.edit().let_grow();
            let unwanted = fork.has_unwanted;
            child.begin_account(&fork.sum.totals());
            child.set_limits(&self.limits());
            let result = result.map_err(Errno::from).and_then(|()| match unwanted {
                true => child.unmap_unwanted(),
                false => Ok(()),
            });
            // Only now: what is not for the child goes, sealed or not.
            child.note_as(self);
            result
        };
        match result {
            Ok(()) => {
                self.memory.count(Counter::Fork);
                child.enter_list();
                Ok(child)
            }
            Err(error) => {
                child.destroy();
                Err(error)
            }
        }
    }

    /// In a child that nobody else knows: takes away mappings that are not for it
    /// (`MADV_DONTFORK`). They have no pages.
    fn unmap_unwanted(&self) -> Result<(), Errno> {
        let mut at = 0;
        while let Some(run) = self.run_in(at, PAGES) {
            at = run.pages.end;
            // SAFETY: nobody else changes the child.
            let mapping = unsafe { run.word.mapping() };
            if mapping.is_some_and(|mapping| mapping.attributes().flags.dont_fork) {
                self.unmap(run.pages)?;
            }
        }
        // The child never had them.
        self.account.set_peak(self.totals().mapped);
        Ok(())
    }
}

/// What a child gets of a mapping's entries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gets {
    /// Everything that the store behind them does not have.
    All,
    /// Guards: the rest is in the store.
    Guards,
    /// None.
    Nothing,
}

/// A fork under way.
struct Fork<'a, M: Machine> {
    parent: &'a AddressSpace<M>,
    child: &'a AddressSpace<M>,
    lock: &'a RangeLock<'a, M>,
    zero: Frame,
    /// The word that was copied last, and its copy: one mapping of the parent
    /// becomes one of the child where its pages follow each other.
    last: Option<(Word, Word)>,
    /// Pages that are marked and whose entries are still to be copied.
    pending: Pages,
    /// What the child gets of the pages that are being marked, and of `pending`.
    gets: Gets,
    pending_gets: Gets,
    /// Whether there are any that the child must not have mapped either.
    has_unwanted: bool,
    /// What the child has mapped so far.
    sum: Sum,
    /// The child's table that was filled last, by its first page.
    table: Option<(u64, Frame)>,
    /// From the first to the last page that is pinned: of the child's only these are
    /// exclusive until they are copied.
    pinned: Option<Pages>,
    gather: Gather,
}

impl<'a, M: Machine> Fork<'a, M> {
    fn new(
        parent: &'a AddressSpace<M>,
        child: &'a AddressSpace<M>,
        lock: &'a RangeLock<'a, M>,
    ) -> Self {
        Self {
            parent,
            child,
            lock,
            zero: parent.machine().frames().zero_frame(),
            last: None,
            pending: Pages::new(0, 0),
            gets: Gets::All,
            pending_gets: Gets::All,
            has_unwanted: false,
            sum: Sum::default(),
            table: None,
            pinned: None,
            gather: Gather::new(),
        }
    }

    /// Copies the entries of all pages that were marked.
    fn copy_pending(&mut self) -> Result<(), NoMemory> {
        let pages = core::mem::replace(&mut self.pending, Pages::new(0, 0));
        if pages.is_empty() {
            return Ok(());
        }
        // From here on no fault on them publishes anything (rule R1).
        self.lock.settle();
        let mut result = Ok(());
        let parent = self.parent;
        // With the write hold no table of the parent is freed.
        parent.for_each_table(pages, &mut |table, part| {
            if result.is_ok() {
                result = self.copy_table(table, part);
            }
        });
        result
    }

    /// Copies those entries of one of the parent's tables that are for `part`.
    fn copy_table(&mut self, table: &Table, part: Pages) -> Result<(), NoMemory> {
        let base = part.start & !(ENTRIES as u64 - 1);
        let (from, end) = (&table.entries(), (part.end - base) as usize);
        // An entry that is empty now stays so: no fault publishes anything here.
        let Some(first) = table.next_used((part.start - base) as usize, end) else {
            return Ok(());
        };
        let to = self.child_table(base)?.entries();
        let source = self.parent.machine().frames();
        // The first and the last that let stores through.
        let mut lowered: Option<(u64, u64)> = None;
        let both = from[first..end].iter().zip(&to[first..end]);
        let mut result = Ok(());
        for (page, (entry, copy)) in (base + first as u64..).zip(both) {
            let value = entry.load();
            if self.pending_gets == Gets::Guards && !AddressSpace::<M>::FORMAT.is_guard(value) {
                continue;
            }
            if value != 0
                && let Some((shared, was_writable)) = self.write_protect(entry, value)
            {
                let format = AddressSpace::<M>::FORMAT;
                let frame = format.frame(shared);
                let mut child = shared;
                if was_writable {
                    lowered = Some((lowered.map_or(page, |(first, _)| first), page));
                }
                if frame != self.zero && !format.is_guard(shared) {
                    let descriptor = source.descriptor(frame);
                    if descriptor.flags().has(Flags::FILE) {
                        // What the parent has used the child will mostly use, too, and would
                        // take a fault for it; the rest it finds in the store. Nobody takes the
                        // page away here: a truncation waits, and comes to the child after the
                        // parent.
                        if !format.is_used(shared) || !descriptor.map() {
                            continue;
                        }
                    } else if !descriptor.share(self.parent.family()) {
                        // Pins are counted under claims, and none comes any more.
                        let value = if was_writable {
                            format.with_write(shared)
                        } else {
                            shared
                        };
                        match self.frame_for_copy(page) {
                            Ok(frame) => child = format.with_frame(value, frame),
                            Err(none) => {
                                result = Err(none);
                                break;
                            }
                        }
                    }
                }
                // Nobody else knows the child yet.
                copy.set(child);
            }
        }
        if let Some((first, last)) = lowered {
            self.gather
                .add(first * PAGE_SIZE, (last - first + 1) * PAGE_SIZE);
        }
        result
    }

    /// A frame of the child's own, for a page that is pinned in the parent.
    #[cold]
    fn frame_for_copy(&mut self, page: u64) -> Result<Frame, NoMemory> {
        let child = self.child;
        let frame = child.memory.allocate_frame_to_fill()?;
        let source = child.machine().frames();
        source.descriptor(frame).set_anonymous(child.id, page);
        let first = self.pinned.map_or(page, |pages| pages.start);
        self.pinned = Some(Pages::new(first, page + 1));
        Ok(frame)
    }

    /// After the flush: copies the pages that are pinned, and lets the parent's stores
    /// through where they were before.
    fn copy_pinned(&mut self) {
        let Some(pages) = self.pinned.take() else {
            return;
        };
        let format = AddressSpace::<M>::FORMAT;
        let (parent, child) = (self.parent, self.child);
        child.for_each_entry(pages, &mut |entry, page| {
            let copy = entry.load();
            let to = format.frame(copy);
            if format.is_guard(copy) || !child.is_exclusive(to) {
                return;
            }
            // SAFETY: with the write hold no table of the parent is freed.
            let walked = unsafe { walk::<M::Format, M>(parent.machine(), parent.root, Page(page)) };
            let Walk::Leaf { entry, .. } = walked else {
                return;
            };
            let value = self.unclaimed(entry);
            parent.machine().copy(format.frame(value), to);
            parent.machine().poll();
            if format.is_writable(copy) {
                self.let_write(entry, value);
            }
        });
    }

    /// Lets stores through an entry that holds `seen`, a page's; not by a store, because
    /// hardware may set bits at any moment (rule R8).
    fn let_write(&self, entry: &Entry, seen: u64) {
        let format = AddressSpace::<M>::FORMAT;
        let mut value = seen;
        while entry.replace(value, format.with_write(value)).is_err() {
            value = self.unclaimed(entry);
        }
    }

    /// Lets no store through an entry that holds `seen`. What it holds then, which
    /// is also the child's, and whether it let stores through; `None` if it is empty.
    #[inline]
    fn write_protect(&self, entry: &Entry, seen: u64) -> Option<(u64, bool)> {
        let format = AddressSpace::<M>::FORMAT;
        let mut value = seen;
        loop {
            if format.is_claimed(value) {
                value = self.unclaimed(entry);
            }
            if value == 0 {
                return None;
            }
            let shared = format.without_write(value);
            if shared == value {
                return Some((shared, false));
            }
            // Not by a store: hardware may set bits at any moment (rule R8).
            match entry.replace(value, shared) {
                Ok(()) => return Some((shared, true)),
                Err(now) => value = now,
            }
        }
    }

    /// What an entry holds when a fault that came too early has seen the mark, or
    /// has published.
    #[cold]
    fn unclaimed(&self, entry: &Entry) -> u64 {
        let mut backoff = Backoff::new();
        loop {
            let value = entry.load();
            if !AddressSpace::<M>::FORMAT.is_claimed(value) {
                return value;
            }
            backoff.turn(self.parent.machine());
        }
    }

    /// The child's table for the pages from `base` on, made if it is missing.
    fn child_table(&mut self, base: u64) -> Result<&'a Table, NoMemory> {
        let format = AddressSpace::<M>::FORMAT;
        let memory = self.child.memory;
        let frame = match self.table {
            Some((at, frame)) if at == base => frame,
            _ => {
                let mut frame = self.child.root;
                for level in (1..LEVELS).rev() {
                    // SAFETY: the child's own table.
                    let table = unsafe { Table::at(memory.machine(), frame) };
                    let entry = table.entry(base, level);
                    frame = match entry.load() {
                        0 => {
                            let new = memory.allocate_table()?;
                            memory.count(Counter::TableAlloc);
                            entry.set(format.table(new));
                            new
                        }
                        value => format.frame(value),
                    };
                }
                self.table = Some((base, frame));
                frame
            }
        };
        // SAFETY: the child's own table, which lives as long as the child.
        Ok(unsafe { Table::at(memory.machine(), frame) })
    }
}

impl<M: Machine> Copier for Fork<'_, M> {
    fn word_for(&mut self, pages: Pages, word: Word) -> Result<Word, NoMemory> {
        self.lock.lock_out_readers(pages);
        // SAFETY: the write hold keeps mappings from being retired.
        let Some(mapping) = (unsafe { word.mapping() }) else {
            // With the write hold nothing else is in a slot.
            return Ok(Word::EMPTY);
        };
        let flags = mapping::Flags {
            locked: Locked::No,
            ..mapping.attributes().flags
        };
        let attributes = Attributes {
            flags,
            ..*mapping.attributes()
        };
        let line = self.sum.add(pages, &attributes);
        // As on Linux, each mapping is a request of its own.
        if !flags.dont_fork && !self.child.may_commit(&attributes, line.len()) {
            return Err(NoMemory);
        }
        let copy = match self.last {
            Some((last, copy)) if last == word => copy,
            _ => {
                self.gets = if flags.dont_fork || flags.wipe_on_fork {
                    Gets::Nothing
                } else if !flags.shared {
                    Gets::All
                } else if self.parent.has_note(Note::GUARDED_STORES) {
                    Gets::Guards
                } else {
                    Gets::Nothing
                };
                self.has_unwanted |= flags.dont_fork;
                let new = self.child.memory.allocate_mapping(self.child, attributes)?;
                // SAFETY: just made; it goes into the child's tree.
                let copy = Word::live(unsafe { new.as_ref() });
                self.last = Some((word, copy));
                copy
            }
        };
        // SAFETY: in the child's tree, or about to be.
        if let Some(mapping) = unsafe { copy.mapping() } {
            mapping.add_pages(pages.len());
        }
        Ok(copy)
    }

    fn marked(&mut self, pages: Pages) -> Result<(), NoMemory> {
        if self.gets == Gets::Nothing {
            return Ok(());
        }
        let goes_on = self.pending.end == pages.start && self.pending_gets == self.gets;
        if !goes_on || self.pending.len() >= STRETCH {
            self.copy_pending()?;
            self.pending = pages;
            self.pending_gets = self.gets;
        } else {
            self.pending.end = pages.end;
        }
        Ok(())
    }
}
