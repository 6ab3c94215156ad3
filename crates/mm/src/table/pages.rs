//! Common helpers for entries and tables: walks over a range, the page of an entry, and flushes.

use faultless_frames::{Descriptor, Flags, FrameSource};
use faultless_paging::{
    ENTRIES, Entry, Frame, Gather, PAGE_SIZE, Page, Pages, Table, Walk, free, next_table, walk,
    walk_to,
};
use faultless_sync::Backoff;
use faultless_sync::reclaim::Section;
use faultless_trace::Kind;

use crate::base::frame_list::POLL_INTERVAL;
use crate::base::machine::Machine;
use crate::table::Tables;
use crate::table::huge::{HUGE_LEVEL, huge_span};

/// What a walk over a range finds under an entry above the lowest level.
pub(crate) enum Span<'a> {
    /// A table, and which of its pages are in the range.
    Table(&'a Table, Pages),
    /// A huge page: its entry, the value that was read, and which of its pages are in the range.
    Huge(&'a Entry, u64, Pages),
}

impl<M: Machine> Tables<M> {
    /// Returns the entry of a page, or the end of the walk: an entry above the lowest level that is empty,
    /// maps a huge page, or is claimed. The tables found stay valid as long as the section.
    #[inline]
    pub(crate) fn look<'s>(&'s self, page: Page, _section: &'s Section<'_>) -> Walk<'s> {
        // SAFETY: the root lives as long as `self`, and the section keeps tables from being reused.
        unsafe { walk::<M::Format, M>(self.machine(), self.root, page) }
    }

    /// The same, for an operation on the page alone: splits a huge page.
    #[inline]
    pub(crate) fn descend<'s>(&'s self, page: Page, section: &'s Section<'_>) -> Walk<'s> {
        loop {
            match self.look(page, section) {
                Walk::Huge { entry, value, .. } => self.split(entry, value, page.0),
                walked => return walked,
            }
        }
    }

    /// As [`Tables::look`], without a section at hand.
    ///
    /// # Safety
    /// The caller is in a section, during `'s`.
    #[inline]
    pub(crate) unsafe fn look_unchecked<'s>(&'s self, page: Page) -> Walk<'s> {
        // SAFETY: passed on to the caller.
        unsafe { walk::<M::Format, M>(self.machine(), self.root, page) }
    }

    /// Flushes what an operation has gathered, once, on the CPUs that run the space, after its guests.
    #[inline(never)]
    pub(crate) fn flush(&self, gather: &mut Gather) {
        self.tell_guests(gather);
        self.flush_cpus(gather);
    }

    /// The same where guests show the same pages afterwards, and with the same rights.
    #[inline(always)]
    pub(crate) fn flush_cpus(&self, gather: &mut Gather) {
        let start = self.memory.trace_start();
        if let Some(flush) = gather.flush(self.machine(), &self.cpus, self.space_id()) {
            let bytes = flush.end - flush.start;
            self.memory
                .trace_end(Kind::Flush, start, flush.start, bytes, 0);
        }
    }

    /// The same if only this CPU may hold any of it. Returns whether that is so.
    #[inline]
    pub(crate) fn flush_here(&self, gather: &mut Gather) -> bool {
        self.tell_guests(gather);
        let (start, cpu) = (self.memory.trace_start(), self.machine().cpu());
        let flushed = gather.flush_here(self.machine(), cpu, &self.cpus, self.space_id());
        if let Ok(Some(flush)) = flushed {
            let bytes = flush.end - flush.start;
            self.memory
                .trace_end(Kind::Flush, start, flush.start, bytes, 0);
        }
        flushed.is_ok()
    }

    /// Whether a frame is the shared zero page.
    #[inline]
    pub(crate) fn is_zero_page(&self, frame: Frame) -> bool {
        frame == self.machine().frames().zero_frame()
    }

    /// Returns the descriptor in which an entry's page is counted, or the page that a claim remembers. The
    /// shared zero page is not counted, and a device's pages have no descriptors.
    #[inline]
    pub(crate) fn counted(&self, value: u64) -> Option<&'static Descriptor> {
        let frame = Self::FORMAT.frame(value);
        let is_counted = !Self::FORMAT.is_device(value) && !self.is_zero_page(frame);
        is_counted.then(|| self.machine().frames().descriptor(frame))
    }

    /// Marks the page of an entry, if that is writable and the page an object's, as one that its pager cannot fill again.
    /// Before the entry is published. The page stays meanwhile.
    pub(crate) fn mark_dirty(&self, value: u64) {
        let is_writable = Self::FORMAT.is_present(value) && Self::FORMAT.is_writable(value);
        let counted = self.counted(value).filter(|_| is_writable);
        if let Some(page) = counted.filter(|page| page.flags().has(Flags::FILE)) {
            page.mark_dirty();
        }
    }

    /// Whether the page of an entry of this space is mapped nowhere else, so that it may be made writable.
    #[inline]
    pub(crate) fn is_exclusive(&self, value: u64) -> bool {
        self.counted(value)
            .is_some_and(|descriptor| descriptor.flags().has(Flags::EXCLUSIVE))
    }

    /// Returns the value with which this CPU publishes an entry that no TLB holds. If walks mark the entries
    /// that they load, this CPU owns the entry until another CPU loads it ([`faultless_paging::holders`]).
    #[inline]
    pub(crate) fn with_tlb_owner(&self, value: u64) -> u64 {
        match self.machine().marks_loads() {
            true => Self::FORMAT.owned(value, self.machine().cpu()),
            false => value,
        }
    }

    /// The same for the entry at `level` above the page.
    pub(crate) fn descend_to<'s>(
        &'s self,
        page: Page,
        level: usize,
        _section: &'s Section<'_>,
    ) -> Walk<'s> {
        // SAFETY: as for `descend`.
        unsafe { walk_to::<M::Format, M>(self.machine(), self.root, page, level) }
    }

    /// Returns an entry's value when it is not claimed; waits for claims.
    pub(crate) fn settled(&self, entry: &Entry) -> u64 {
        let mut backoff = Backoff::new();
        loop {
            let value = entry.load();
            if !Self::FORMAT.is_claimed(value) {
                return value;
            }
            backoff.turn(self.machine());
        }
    }

    /// Returns `page`, or the first page behind it that may have a table.
    pub(crate) fn first_table(&self, page: u64, limit: u64) -> u64 {
        let _section = self.memory.enter();
        // SAFETY: inside the section.
        unsafe { next_table::<M::Format, M>(self.machine(), self.root, page, limit) }
    }

    /// Records what has to be flushed, and on which CPUs, after `value` was taken out of an entry, or
    /// lowered.
    pub(crate) fn gather(&self, value: u64, page: u64, gather: &mut Gather) {
        if Self::FORMAT.is_present(value) {
            gather.add(page * PAGE_SIZE, PAGE_SIZE, Self::FORMAT.holders(value));
        }
    }

    /// Flushes a page. Its entry is claimed now, and held `before`.
    pub(crate) fn flush_page(&self, page: Page, before: u64) {
        let mut gather = Gather::new();
        self.gather(before, page.0, &mut gather);
        self.flush(&mut gather);
    }

    /// Calls `visit` with every entry of `pages` that is not empty. The caller is in a section.
    pub(crate) fn for_each_entry(&self, pages: Pages, visit: &mut impl FnMut(&Entry, u64)) {
        self.for_each_table(pages, &mut |table, part| {
            self.for_each_in(table, part, visit)
        });
    }

    /// The same for pages of one table.
    #[inline]
    pub(crate) fn for_each_in(
        &self,
        table: &Table,
        part: Pages,
        visit: &mut impl FnMut(&Entry, u64),
    ) {
        let base = part.start & !(ENTRIES as u64 - 1);
        let (mut at, end) = ((part.start - base) as usize, (part.end - base) as usize);
        while let Some(number) = table.next_used(at, end) {
            visit(&table.entries()[number], base + number as u64);
            at = number + 1;
            if (at as u64).is_multiple_of(POLL_INTERVAL) {
                self.machine().poll();
            }
        }
    }

    /// Calls `visit` with every table of the lowest level that has entries of `pages`, and with those pages. Splits huge
    /// pages. The caller is in a section, or all of `pages` have been mapped or reserved since before the caller's
    /// fence.
    pub(crate) fn for_each_table(&self, pages: Pages, visit: &mut impl FnMut(&Table, Pages)) {
        self.visit_spans(pages, &mut |span| match span {
            Span::Table(table, part) => {
                visit(table, part);
                true
            }
            Span::Huge(..) => false,
        });
    }

    /// Calls `visit` with every table and every huge page that has entries of `pages`, and with those pages. A huge page for
    /// which that returns `false` is split, and then visited as a table. The caller as for [`Tables::for_each_table`].
    pub(crate) fn visit_spans(&self, pages: Pages, visit: &mut impl FnMut(Span<'_>) -> bool) {
        let mut visit_parent = |parent: &Entry, base: u64| {
            let part = pages.and(huge_span(base));
            let mut backoff = Backoff::new();
            let value = loop {
                let value = parent.load();
                if Self::FORMAT.is_claimed(value) {
                    // A table is being installed or freed: wait (rule R1).
                    backoff.turn(self.machine());
                } else if Self::FORMAT.is_huge(value) {
                    if visit(Span::Huge(parent, value, part)) {
                        return;
                    }
                    self.split(parent, value, base);
                } else {
                    break value;
                }
            };
            if value == 0 {
                return;
            }
            // SAFETY: found linked inside the caller's section.
            let table = unsafe { Table::at(self.machine(), Self::FORMAT.frame(value)) };
            self.machine().poll();
            visit(Span::Table(table, part));
        };
        // SAFETY: inside the caller's section, or no table is freed.
        unsafe {
            free::entries_at::<M::Format, M>(
                self.machine(),
                self.root,
                pages,
                HUGE_LEVEL,
                &mut visit_parent,
            );
        }
    }

    /// Calls `visit` with the value of every entry of `pages` that is not empty, and with its page; where there is a huge
    /// page, with what its entries would be if it were split. Changes nothing. The caller is in a section.
    pub(crate) fn for_each_page(&self, pages: Pages, visit: &mut impl FnMut(u64, u64)) {
        self.visit_spans(pages, &mut |span| {
            match span {
                Span::Table(table, part) => {
                    self.for_each_in(table, part, &mut |entry, page| visit(entry.load(), page));
                }
                Span::Huge(_, value, part) => {
                    (part.start..part.end).for_each(|page| visit(self.part_of(value, page), page));
                }
            }
            true
        });
    }

    pub(crate) fn trace_zap(&self, start: u64, pages: Pages) {
        let address = pages.start * PAGE_SIZE;
        self.memory
            .trace_end(Kind::Zap, start, address, pages.len() * PAGE_SIZE, 0);
    }
}
