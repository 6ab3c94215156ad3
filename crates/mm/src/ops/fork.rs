//! `fork`: creates a second address space with the same mappings, which shares every page until either space
//! writes it.
//!
//! The child is a snapshot (rule R10): of two writes by another thread, it has the first if it has the second.
//! Three steps make it one:
//!
//! 1. Fork walks the mappings, shows each as *changing*, and gives the child its own; fence. Faults wait, so
//!    that no page appears where there is no table to freeze.
//! 2. All tables are *frozen*, with one flush ([`crate::table::freeze`]): no store goes through. That moment is
//!    the snapshot. The mappings are shown live again.
//! 3. Table by table, the entries are copied and write-protected, and the table is thawed. A fault on a frozen
//!    table waits for it, and makes it the next. All other faults continue.
//!
//! The first two steps take time by mappings and tables, the third by pages. A store that needs no fault can
//! still reach a page before the flush; that page is then the child's, too. A store after the flush goes to a
//! copy, or to a page that the child does not have.
//!
//! A pinned page is not shared, because the parent's next store would then go to another page than the pinned
//! one. The child gets a copy, made while no store of the program can reach the page: the snapshot holds for
//! it, too. The parent's entry stays as it is.
//!
//! * Fork holds every range until it ends, so other writers of the parent wait.
//! * Zaps continue: the pages that they free are mapped neither here nor in the child.
//! * A move holds its ranges until it has ended, so fork waits for it.
//! * Fork changes nothing in the parent that could not stay. If it fails, it thaws the remaining tables without
//!   copying. Some pages then remain marked shared without being so; the next write of each finds that out.
//!
//! *Writes*: every slot of the parent's tree; every entry that leads to a table; the parent's entries that were
//! writable; every page's descriptor.
//!
//! *Models*: loom `ops/fork.rs`, shuttle `ops/fork.rs`.

use faultless_frames::{FrameSource, NoMemory, Sharing};
use faultless_paging::{ENTRIES, Entry, Format, Frame, LEVELS, Pages, Table};
use faultless_sync::Backoff;
use faultless_sync::atomic::Ordering;
use faultless_trace::{Counter, Kind};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::notes::Note;
use crate::base::userfault::{Handler, numbers as userfault};
use crate::lock::RangeWriteGuard;
use crate::lock::change::ChangeGuard;
use crate::ops::userfault::events::Forked;
use crate::probe::space::install_probes;
use crate::rmap::anon::enter_list;
use crate::space::{AddressSpace, OwnedSpace};
use crate::table::huge::HUGE_LEVEL;
use crate::table::rss::{RssDelta, RssKind};
use crate::table::txn::PteTxn;
use crate::tree::account::Sum;
use crate::tree::mapping::{self, Attributes, Locked};
use crate::tree::{Copier, PAGES, Run, SlotValue};

impl<M: Machine> AddressSpace<M> {
    /// Creates an address space with the same layout, limits, policy, heap and mappings, none of them locked.
    /// Both share their pages until these are written.
    ///
    /// # Errors
    /// `ENOMEM` when memory is short, or a mapping is larger than memory. Nothing has changed.
    pub fn fork(&self) -> Result<OwnedSpace<M>, Errno> {
        let (child, _) = self.fork_beside_handlers()?;
        Ok(child)
    }

    /// The same, for a port with userfaultfds: also returns what is to be reported to their handlers.
    ///
    /// # Errors
    /// As [`AddressSpace::fork`].
    pub fn fork_beside_handlers(&self) -> Result<(OwnedSpace<M>, Forked<M>), Errno> {
        let start = self.trace_start();
        let mut handlers = Forked::none();
        let result = self.copy(&mut handlers);
        let result = result.map(|child| (child, handlers));
        self.trace_result(Kind::Fork, start, (0, self.layout().end), result)
    }

    fn copy(&self, handlers: &mut Forked<M>) -> Result<OwnedSpace<M>, Errno> {
        let child = OwnedSpace::unlisted(self.memory(), self.policy(), *self.layout())?;
        child.join_family(self);
        let (result, has_unwanted) = {
            let lock = self.maps.lock_everything_beside_replacing();
            for (to, from) in child.maps.brk.iter().zip(self.maps.brk.iter()) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            // Nothing maps memory in the child before it is complete. A visitor that finds it through an
            // object's list waits for that if it has to.
            let others = child.maps.keep_others_out();
            debug_assert!(others.is_some(), "the child is already known");
            lock.edit().freeze_tree();
            child.begin_clearings(self);
            let mut fork = Fork::new(self, &child, &lock, handlers);
            let result = self.tree().copy_to(child.tree(), self.memory(), &mut fork);
            let result = result.and_then(|()| {
                // From here on, a fault publishes only if its claim is seen below (rule R1).
                lock.validation_fence();
                let mut share = |entry: &Entry, value, pages| fork.share_huge(entry, value, pages);
                self.tables()
                    .freeze(self.tree(), self.all_pages(), &mut share)
            });
            self.tree().show_live();
            self.maps.clear_notes_of_child(&child.maps);
            let mut edit = lock.edit();
            edit.let_change();
            let left = self.maps.end_left_zaps(&mut edit);
            drop(edit);
            self.maps.say_ended(&left);
            let has_unwanted = fork.has_unwanted;
            child.maps.begin_account(&fork.sum.totals());
            child.set_limits(&self.limits());
            child.set_huge_off(self.huge_is_off());
            if self.is_registered_for_scan() {
                child.register_for_scan();
            }
            let copied = fork.copy_tables(result);
            // While nothing of which the child has a copy leaves the parent.
            child.maps.notify_fork(&self.maps);
            (copied, has_unwanted)
        };
        let result = result
            .map_err(Errno::from)
            .and_then(|()| match has_unwanted {
                true => child.unmap_unwanted(),
                false => Ok(()),
            });
        // Copied only now, so that the mappings that are not for the child are unmapped even if they are
        // sealed.
        child.maps.notes.copy_from(&self.maps.notes);
        match result {
            Ok(()) => {
                self.memory().count(Counter::Fork);
                enter_list(&child);
                install_probes(&child, child.all_pages());
                Ok(child)
            }
            Err(error) => {
                child.destroy();
                Err(error)
            }
        }
    }

    /// In a child that nothing else knows yet, unmaps the mappings that are not for it (`MADV_DONTFORK`). They
    /// have no pages.
    fn unmap_unwanted(&self) -> Result<(), Errno> {
        let mut at = 0;
        while let Some(run) = self.maps.run_in(at, PAGES) {
            at = run.pages.end;
            // SAFETY: nothing else changes the child.
            let mapping = unsafe { run.word.mapping() };
            if mapping.is_some_and(|mapping| mapping.attributes().flags.dont_fork) {
                self.unmap(run.pages)?;
            }
        }
        // The child never had them.
        self.maps.account.set_peak(self.totals().mapped);
        Ok(())
    }
}

/// Which of a mapping's entries a child gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gets {
    /// All, except unused pages of an object, which the child finds in the object.
    All,
    /// Only guards: the rest is in the object.
    Guards,
    /// None.
    Nothing,
}

/// Copies an entry if it holds a guard.
fn copy_guard(entry: &Entry, copy: &Entry, format: Format) {
    let value = entry.load();
    if format.is_guard(value) {
        copy.set(value);
    }
}

/// A fork in progress.
struct Fork<'a, M: Machine> {
    parent: &'a AddressSpace<M>,
    child: &'a AddressSpace<M>,
    lock: &'a RangeWriteGuard<'a, M>,
    zero: Frame,
    /// The family of the parent and the child ([`AddressSpace::family`]).
    family: u64,
    /// The slot value that was copied last, and its copy: one mapping of the parent becomes one of the child
    /// where its pages follow each other.
    last: Option<(SlotValue, SlotValue)>,
    /// Whether the child must not keep some of the mappings (`MADV_DONTFORK`).
    has_unwanted: bool,
    /// The account of what the child has mapped so far.
    sum: Sum,
    /// The child's table that was filled last, with its first page.
    table: Option<(u64, Frame)>,
    handlers: &'a mut Forked<M>,
}

impl<'a, M: Machine> Fork<'a, M> {
    fn new(
        parent: &'a AddressSpace<M>,
        child: &'a AddressSpace<M>,
        lock: &'a RangeWriteGuard<'a, M>,
        handlers: &'a mut Forked<M>,
    ) -> Self {
        Self {
            parent,
            child,
            lock,
            zero: parent.machine().frames().zero_frame(),
            family: parent.family(),
            last: None,
            has_unwanted: false,
            sum: Sum::default(),
            table: None,
            handlers,
        }
    }

    /// Shares a huge page with the child: write-protects its entry, and gives the child the same. Returns what the entry held
    /// then, for the flush; `None` if the page has to be split. Before the parent's mappings are shown live again, so that no write takes
    /// the page for the parent's alone.
    fn share_huge(
        &mut self,
        entry: &Entry,
        seen: u64,
        pages: Pages,
    ) -> Result<Option<u64>, NoMemory> {
        let gets_all = |word: SlotValue| {
            // SAFETY: nothing else changes the child.
            let mapping = unsafe { word.mapping() };
            mapping.is_some_and(|mapping| self.gets_of(mapping.attributes()) == Gets::All)
        };
        if self.parent.tables().is_huge_of_object(seen) {
            // The child finds it in the object.
            return Ok(Some(0));
        }
        if self.lock.meets_zaps() || !self.child.tree().all_slots(pages, gets_all) {
            return Ok(None);
        }
        let (tables, memory) = (self.parent.tables(), self.parent.memory());
        let (format, machine) = (AddressSpace::<M>::FORMAT, memory.machine());
        let to = self.child_entry(pages.start, HUGE_LEVEL)?;
        let is_zero = tables.is_huge_zero(seen);
        let table = match is_zero {
            true => None,
            false => Some(memory.allocate_deposit()?),
        };
        let txn = PteTxn::begin(machine);
        // An operation on one of the pages may split the huge page at any time.
        let claim = txn.claim_present(entry, seen, || Ok(())).ok();
        let share = |table| tables.share_huge(format.frame(seen), table, self.family);
        let before = match claim.filter(|_| table.is_none_or(share)) {
            // The last value names the CPUs to flush: walks may mark the entry while it is claimed.
            Some(claim) => claim.publish(|value| format.without_write(value)),
            None => {
                let unused = table.into_iter();
                unused.for_each(|table| machine.frames().free(machine.cpu(), table));
                return Ok(None);
            }
        };
        drop(txn);
        if !is_zero {
            let mut came = RssDelta::default();
            came.add_many(RssKind::Anonymous, ENTRIES as u64);
            self.child.tables().rss.came_all(machine.cpu(), &came);
            memory.count_huge(format.frame(seen), 1);
        }
        // As for a small page: any CPU may come to hold it.
        to.set(format.without_write(seen));
        Ok(Some(before))
    }

    /// Copies and thaws all frozen tables. If memory is short, or was before, only thaws them.
    fn copy_tables(&mut self, before: Result<(), NoMemory>) -> Result<(), NoMemory> {
        let parent = self.parent;
        let mut result = before;
        parent
            .tables()
            .for_each_frozen(parent.tree(), parent.all_pages(), &mut |entry, pages| {
                // Tables for which faults wait come first.
                while let Some(page) = parent.tables().take_wanted() {
                    parent.tables().for_each_frozen(
                        parent.tree(),
                        Pages::new(page, page + 1),
                        &mut |entry, pages| {
                            self.copy_and_thaw(entry, pages, &mut result);
                        },
                    );
                }
                self.copy_and_thaw(entry, pages, &mut result);
                parent.machine().poll();
            });
        result
    }

    /// Copies and thaws the table of `pages` to which an entry leads, unless that is done.
    fn copy_and_thaw(&mut self, entry: &Entry, pages: Pages, result: &mut Result<(), NoMemory>) {
        let format = AddressSpace::<M>::FORMAT;
        let value = entry.load();
        if !format.is_frozen(value) {
            return;
        }
        if result.is_ok() {
            // SAFETY: something is mapped in its pages, and stays so: it is not freed (rule R5).
            let table = unsafe { Table::at(self.parent.machine(), format.frame(value)) };
            // The child has the same mappings, and nothing changes them.
            let child = self.child;
            let mut runs = child.tree().runs(pages);
            *result = runs.try_for_each(|run| match self.lock.meets_zaps() {
                false => self.copy_run(table, &run),
                true => self.copy_own(table, &run),
            });
        }
        self.parent.tables().thaw(entry);
    }

    /// The same as [`Fork::copy_run`], except where the parent's mapping is *replacing*: the entries there may
    /// belong to the previous mapping. Where that has ended there is no page yet, because the table is frozen.
    #[cold]
    fn copy_own(&mut self, table: &Table, run: &Run) -> Result<(), NoMemory> {
        let mut at = run.pages.start;
        while let Some(part) = self.parent.maps.run_in(at, run.pages.end) {
            at = part.pages.end;
            let own = Run {
                pages: part.pages,
                word: run.word,
            };
            if !part.word.is_replacing() {
                self.copy_run(table, &own)?;
            }
        }
        Ok(())
    }

    /// Copies the entries of one of the parent's tables for a run of the child, where they belong to the
    /// parent's mapping.
    fn copy_run(&mut self, table: &Table, run: &Run) -> Result<(), NoMemory> {
        // SAFETY: nothing else changes the child.
        let Some(mapping) = (unsafe { run.word.mapping() }) else {
            return Ok(());
        };
        let gets = self.gets_of(mapping.attributes());
        if gets == Gets::Nothing {
            return Ok(());
        }
        let base = run.pages.start & !(ENTRIES as u64 - 1);
        let (from, end) = (table.entries(), (run.pages.end - base) as usize);
        // An entry that is empty now stays empty: no fault publishes anything here.
        let Some(first) = table.next_used((run.pages.start - base) as usize, end) else {
            return Ok(());
        };
        let to = self.child_table(base)?.entries();
        let entries = from[first..end].iter().zip(&to[first..end]);
        if gets == Gets::All {
            let zero = self.zero;
            let keeps = match mapping.attributes().handler.reports_writes() {
                true => !0,
                false => !AddressSpace::<M>::FORMAT.reports_writes,
            };
            let mut came = RssDelta::default();
            let mut entries = (base + first as u64..).zip(entries);
            let result = entries.try_for_each(|(page, (entry, copy))| {
                self.copy_entry(entry, (copy, page), (zero, keeps), &mut came)
            });
            let cpu = self.child.machine().cpu();
            self.child.tables().rss.came_all(cpu, &came);
            result
        } else {
            entries.for_each(|(entry, copy)| copy_guard(entry, copy, AddressSpace::<M>::FORMAT));
            Ok(())
        }
    }

    /// Copies one entry, counts the second mapping of its page, and adds that to `came`. `copy` is the child's
    /// entry of `page`, which no other CPU knows yet, and gets the bits in `keeps`.
    #[inline]
    fn copy_entry(
        &self,
        entry: &Entry,
        (copy, page): (&Entry, u64),
        (zero, keeps): (Frame, u64),
        came: &mut RssDelta,
    ) -> Result<(), NoMemory> {
        let format = AddressSpace::<M>::FORMAT;
        let mut value = entry.load();
        if format.is_claimed(value) {
            value = self.unclaimed(entry);
        }
        if value == 0 {
            return Ok(());
        }
        if !format.is_present(value) && self.copy_pageless((entry, value), copy, (keeps, came))? {
            return Ok(());
        }
        let frame = format.frame(value);
        if frame != zero {
            let descriptor = self.parent.machine().frames().descriptor(frame);
            match descriptor.share(self.family) {
                Sharing::Shared => came.add_anonymous(),
                // The child will probably use what the parent has used of a file, and this saves it the faults.
                // It finds the rest in the object. No truncation frees the page meanwhile: it waits, and
                // reaches the child after the parent.
                Sharing::File if format.is_used(value) && descriptor.map() => {
                    came.add(Some(RssKind::of(descriptor)));
                }
                Sharing::File => {
                    if value & keeps & format.reports_writes != 0 {
                        copy.set(format.marker());
                    }
                    return Ok(());
                }
                Sharing::Pinned => {
                    let own = self.copy_of(frame, page)?;
                    copy.set(format.with_frame(value & keeps, own));
                    came.add_anonymous();
                    return Ok(());
                }
            }
        }
        copy.set(self.write_protect(entry, value) & keeps);
        Ok(())
    }

    /// Copies an entry without a page in memory. Of a page that was swapped out, both name the slot, and neither is
    /// exclusive. The table is frozen, so that no fault replaces the parent's. Returns whether it was such an entry.
    #[cold]
    #[inline(never)]
    fn copy_pageless(
        &self,
        (entry, mut seen): (&Entry, u64),
        copy: &Entry,
        (keeps, came): (u64, &mut RssDelta),
    ) -> Result<bool, NoMemory> {
        let format = AddressSpace::<M>::FORMAT;
        let Some(swapped) = self.parent.tables().swap_of(seen) else {
            let is_kept = seen != format.marker() || keeps & format.reports_writes != 0;
            if !format.has_page(seen) && is_kept {
                copy.set(seen);
            }
            return Ok(!format.has_page(seen));
        };
        if !self.parent.memory().share_slot(&swapped) {
            return Err(NoMemory);
        }
        let shared = loop {
            let shared = seen & !format.swap.exclusive;
            if shared == seen || entry.replace(seen, shared).is_ok() {
                break shared;
            }
            // A late fault has claimed the entry, and withdraws.
            seen = self.unclaimed(entry);
        };
        copy.set(shared & keeps);
        came.add(Some(RssKind::Swap));
        Ok(true)
    }

    /// Returns a copy, for a page of the child, of a page that is pinned in the parent. No store of the program
    /// reaches the pinned page now: its table is frozen.
    #[cold]
    fn copy_of(&self, frame: Frame, page: u64) -> Result<Frame, NoMemory> {
        let child = self.child;
        let new = child.memory().allocate_frame_to_fill()?;
        let frames = child.machine().frames();
        frames.descriptor(new).set_anonymous(child.number(), page);
        child.machine().copy(frame, new);
        Ok(new)
    }

    /// Returns the registration of the child's copy of a mapping. Beyond a few userfaultfds it has none.
    fn handler_of(&mut self, handler: Handler) -> Result<Handler, NoMemory> {
        if handler.is_none() || !handler.with_feature(userfault::EVENT_FORK) {
            return Ok(Handler::NONE);
        }
        self.handlers.handler_of(self.parent.memory(), handler)
    }

    fn gets_of(&self, attributes: &Attributes) -> Gets {
        let flags = attributes.flags;
        if flags.dont_fork || flags.wipe_on_fork {
            Gets::Nothing
        } else if !flags.shared || attributes.handler.reports_writes() {
            Gets::All
        } else if self.parent.maps.has_note(Note::GUARDED_OBJECTS) {
            Gets::Guards
        } else {
            Gets::Nothing
        }
    }

    /// Write-protects an entry that holds `seen`, a page or a guard. Returns its new value, which is also the
    /// child's.
    #[inline]
    fn write_protect(&self, entry: &Entry, seen: u64) -> u64 {
        let format = AddressSpace::<M>::FORMAT;
        let mut value = seen;
        loop {
            let shared = format.without_write(value);
            // By compare-and-swap: hardware may set bits at any moment (rule R8).
            if shared == value || entry.replace(value, shared).is_ok() {
                return shared;
            }
            // Hardware has set a bit, or a late fault has claimed the entry, and withdraws.
            value = self.unclaimed(entry);
        }
    }

    /// Returns an entry's value once the fault that has claimed it has published or withdrawn.
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

    /// Returns the child's table for the pages from `base` on. Installs it if it is missing.
    fn child_table(&mut self, base: u64) -> Result<&'a Table, NoMemory> {
        let frame = match self.table {
            Some((at, frame)) if at == base => frame,
            _ => {
                let frame = self.child_table_at(base, 0)?;
                self.table = Some((base, frame));
                frame
            }
        };
        // SAFETY: the child's own table, which lives as long as the child.
        Ok(unsafe { Table::at(self.child.machine(), frame) })
    }

    /// Returns the child's entry of a page at `level`. Installs the tables above it that are missing.
    fn child_entry(&self, page: u64, level: usize) -> Result<&'a Entry, NoMemory> {
        let frame = self.child_table_at(page, level)?;
        // SAFETY: as above.
        Ok(unsafe { Table::at(self.child.machine(), frame) }.entry(page, level))
    }

    /// Returns the child's table over a page with entries at `bottom`. Installs what is missing.
    fn child_table_at(&self, page: u64, bottom: usize) -> Result<Frame, NoMemory> {
        let format = AddressSpace::<M>::FORMAT;
        let memory = self.child.memory();
        let mut frame = self.child.tables().root;
        for level in (bottom + 1..LEVELS).rev() {
            // SAFETY: the child's own table.
            let table = unsafe { Table::at(memory.machine(), frame) };
            let entry = table.entry(page, level);
            frame = match entry.load() {
                0 => {
                    let new = memory.allocate_table()?;
                    memory.count(Counter::TableAlloc);
                    let cpu = memory.machine().cpu();
                    self.child.tables().rss.came(cpu, RssKind::Table);
                    entry.set(format.table(new));
                    new
                }
                value => format.frame(value),
            };
        }
        Ok(frame)
    }
}

impl<M: Machine> Copier for Fork<'_, M> {
    fn word_for(&mut self, pages: Pages, word: SlotValue) -> Result<SlotValue, NoMemory> {
        self.lock.lock_out_readers(pages);
        // SAFETY: the range keeps mappings from being retired.
        let Some(mapping) = (unsafe { word.mapping() }) else {
            // A mark, which is cleared when the copy is complete.
            return Ok(word);
        };
        let flags = mapping::Flags {
            locked: Locked::No,
            ..mapping.attributes().flags
        };
        let attributes = Attributes {
            flags,
            handler: self.handler_of(mapping.attributes().handler)?,
            ..*mapping.attributes()
        };
        let line = self.sum.add(pages, &attributes);
        // As on Linux, each mapping is a separate request to commit memory.
        if !flags.dont_fork && !self.child.maps.may_commit(&attributes, line.len()) {
            return Err(NoMemory);
        }
        let copy = match self.last {
            Some((last, copy)) if last == word => copy,
            _ => {
                self.has_unwanted |= flags.dont_fork;
                let new = self.child.allocate_mapping(attributes)?;
                // SAFETY: just made; it goes into the child's tree.
                let copy = SlotValue::live(unsafe { new.as_ref() });
                self.last = Some((word, copy));
                copy
            }
        };
        // SAFETY: in the child's tree, or about to be.
        if let Some(mapping) = unsafe { copy.mapping() } {
            mapping.add_pages(pages.len(), false);
        }
        Ok(copy)
    }
}
