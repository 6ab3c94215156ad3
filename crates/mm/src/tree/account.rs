//! Statistics of what an address space has mapped: pages by kind, and mappings.
//!
//! Limits compare with these numbers, and `/proc` shows them. Each number is a function of the mapping tree
//! alone (the verifier counts again). It changes where the tree changes: under the edit lock, by what an
//! [`AccountDelta`] finds in the range that is about to change. A fault changes no mapping, and so no number
//! here.
//!
//! *Mappings* are counted as Linux counts its own: the lines of `/proc/PID/maps`. The tree keeps no object
//! for such a line. A line begins at each page with attributes that differ from those of the page before it.
//! A change can make or remove such beginnings only inside its range and at the first page behind it. An
//! [`AccountDelta`] therefore looks at the range and at one page on either side. It subtracts the old
//! beginnings and adds the new ones, so the count stays exact.
//!
//! Each shard ([`crate::lock::shard`]) has an account of its own, which holds differences that wrap. An edit
//! of everything *settles* them: it adds them to the space's account.
//!
//! *Writes*: the account of the space or of the shard, by writers and by stacks that grow; for committed
//! pages also a line of this CPU.

use faultless_paging::Pages;
use faultless_sync::atomic::Local;

use crate::tree::mapping::{Attributes, Locked, Mapping};
use crate::tree::{Neighbours, SlotValue};
use crate::tune::QUOTA;
use crate::tune::SLACK;

/// What an address space has mapped: pages, and the number of mappings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmStats {
    /// All pages.
    pub mapped: u64,
    /// Pages that are private and writable, without stacks.
    pub data: u64,
    /// Pages of mappings that grow down.
    pub stack: u64,
    /// Pages that are executable and not writable, without stacks.
    pub code: u64,
    /// Pages that stay in memory (`mlock`).
    pub locked: u64,
    /// Pages that may come to need memory: private and writable, without `MAP_NORESERVE`.
    pub committed: u64,
    /// Mappings: lines of `/proc/PID/maps`.
    pub mappings: u64,
    /// The most pages that were ever mapped. With shards it is not exact: the peak of each shard is added to
    /// what the others have when it is read.
    pub peak: u64,
}

impl Attributes {
    /// Whether its pages count against the data limit.
    pub(crate) fn is_data(&self) -> bool {
        self.protection.write && !self.flags.shared && !self.flags.grows_down
    }

    /// Whether its pages may come to need memory that nothing else accounts for.
    pub(crate) fn commits(&self) -> bool {
        self.protection.write && !self.flags.shared && !self.flags.no_reserve
    }
}

impl VmStats {
    /// Adds `pages` with these attributes. Arithmetic wraps, so that it also subtracts.
    fn add(&mut self, attributes: &Attributes, pages: u64) {
        let add = |to: &mut u64, applies: bool| {
            if applies {
                *to = to.wrapping_add(pages);
            }
        };
        let protection = attributes.protection;
        let is_stack = attributes.flags.grows_down;
        add(&mut self.mapped, true);
        add(&mut self.data, attributes.is_data());
        add(&mut self.stack, is_stack);
        let is_code = protection.execute && !protection.write && !is_stack;
        add(&mut self.code, is_code);
        add(&mut self.locked, attributes.flags.locked != Locked::No);
        add(&mut self.committed, attributes.commits());
    }

    /// Returns the sum of both changes.
    pub(crate) fn and(self, change: &VmStats) -> VmStats {
        VmStats {
            mapped: self.mapped.wrapping_add(change.mapped),
            data: self.data.wrapping_add(change.data),
            stack: self.stack.wrapping_add(change.stack),
            code: self.code.wrapping_add(change.code),
            locked: self.locked.wrapping_add(change.locked),
            committed: self.committed.wrapping_add(change.committed),
            mappings: self.mappings.wrapping_add(change.mappings),
            peak: 0,
        }
    }
}

const _: () = assert!(SLACK <= QUOTA / 2);

/// An address space's totals. Written under the tree's edit lock, and read without it, perhaps in the middle
/// of a change.
#[derive(Default)]
pub(crate) struct Account {
    pub(crate) mapped: Local,
    pub(crate) data: Local,
    stack: Local,
    code: Local,
    pub(crate) locked: Local,
    committed: Local,
    pub(crate) mappings: Local,
    /// The most pages mapped before the last change that unmapped some.
    peak: Local,
}

impl Account {
    /// Returns the present totals.
    pub(crate) fn get(&self) -> VmStats {
        let mapped = self.mapped.get();
        VmStats {
            mapped,
            data: self.data.get(),
            stack: self.stack.get(),
            code: self.code.get(),
            locked: self.locked.get(),
            committed: self.committed.get(),
            mappings: self.mappings.get(),
            peak: higher(self.peak.get(), mapped),
        }
    }

    pub(crate) fn set(&self, totals: &VmStats) {
        self.mapped.set(totals.mapped);
        self.data.set(totals.data);
        self.stack.set(totals.stack);
        self.code.set(totals.code);
        self.locked.set(totals.locked);
        self.committed.set(totals.committed);
        self.mappings.set(totals.mappings);
        self.peak.set(totals.peak);
    }

    /// Counts a change. Most changes affect few of the counts.
    pub(crate) fn apply(&self, change: &VmStats) {
        if change.mapped.cast_signed() < 0 {
            self.peak.set(higher(self.peak.get(), self.mapped.get()));
        }
        for (of, more) in [
            (&self.mapped, change.mapped),
            (&self.data, change.data),
            (&self.stack, change.stack),
            (&self.code, change.code),
            (&self.locked, change.locked),
            (&self.committed, change.committed),
            (&self.mappings, change.mappings),
        ] {
            if more != 0 {
                of.add(more);
            }
        }
    }

    /// Adds a shard's differences since the last settlement to this account, and clears them. Under all edit
    /// locks.
    pub(crate) fn settle(&self, shard: &Account) {
        let more = shard.get();
        if more == VmStats::default() {
            return;
        }
        let now = self.get();
        self.set(&VmStats {
            peak: higher(now.peak, now.mapped.wrapping_add(more.peak)),
            ..now.and(&more)
        });
        shard.set(&VmStats::default());
    }

    /// Whether the shard has gained so many mappings since its last settlement that the next one is due.
    pub(crate) fn has_used_quota(&self) -> bool {
        self.mappings.get().cast_signed() > (QUOTA - SLACK).cast_signed()
    }

    /// Sets the peak. [`Account::get`] still reports no less than what is mapped.
    pub(crate) fn set_peak(&self, pages: u64) {
        self.peak.set(pages);
    }
}

/// Returns the greater of two page counts of an account of differences.
pub(crate) fn higher(one: u64, other: u64) -> u64 {
    one.cast_signed().max(other.cast_signed()).cast_unsigned()
}

/// The change of an account when all pages of a range become something else. Each run of the range is passed
/// to it.
pub(crate) struct AccountDelta<'s> {
    pages: Pages,
    change: VmStats,
    /// The end and the attributes of the run seen last, or of what precedes the range.
    last: Option<(u64, &'s Attributes)>,
    before: Option<&'s Attributes>,
    behind: Option<&'s Attributes>,
}

/// Whether two mappings are one line. Mostly they are the same object, or differ soon.
fn is_one(one: Option<&Attributes>, other: Option<&Attributes>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => core::ptr::eq(one, other) || one == other,
        _ => false,
    }
}

impl<'s> AccountDelta<'s> {
    /// Begins the change of `pages`, before any run is seen.
    ///
    /// # Safety
    /// Nothing in the tree is released during `'s`. The caller is editing; it is also in a read section if
    /// mappings may have pages in other lock domains. The neighbours are those of `pages`, seen under the
    /// same edit.
    pub(crate) unsafe fn new(pages: Pages, Neighbours { before, behind }: Neighbours) -> Self {
        // SAFETY: passed on to the caller.
        let attributes = |word: SlotValue| unsafe { word.mapping() }.map(Mapping::attributes);
        let before = attributes(before);
        Self {
            pages,
            change: VmStats::default(),
            last: before.map(|before| (pages.start, before)),
            before,
            behind: attributes(behind),
        }
    }

    /// Returns the attributes of the run seen last, if it ends at `page`.
    fn at(&self, page: u64) -> Option<&'s Attributes> {
        self.last
            .filter(|&(end, _)| end == page)
            .map(|(_, last)| last)
    }

    /// Counts a mapped run of the range.
    pub(crate) fn see(&mut self, run: Pages, attributes: &'s Attributes) {
        if !is_one(self.at(run.start), Some(attributes)) {
            self.change.mappings = self.change.mappings.wrapping_sub(1);
        }
        self.last = Some((run.end, attributes));
        self.change.add(attributes, run.len().wrapping_neg());
    }

    /// Returns the change if the range becomes `new`: differences, which wrap.
    pub(crate) fn end(mut self, new: Option<&Attributes>) -> VmStats {
        if self.pages.is_empty() {
            return VmStats::default();
        }
        let mut begins = 0;
        if let Some(new) = new {
            self.change.add(new, self.pages.len());
            begins += u64::from(!is_one(self.before, Some(new)));
        }
        if self.behind.is_some() {
            let began = !is_one(self.at(self.pages.end), self.behind);
            begins += u64::from(!is_one(new, self.behind));
            begins = begins.wrapping_sub(began.into());
        }
        self.change.mappings = self.change.mappings.wrapping_add(begins);
        self.change
    }
}

/// The totals of runs that are added in order.
#[derive(Default)]
pub(crate) struct Sum {
    totals: VmStats,
    last: Option<(Pages, Attributes)>,
}

impl Sum {
    /// Adds the next pages. Returns the mapping that they belong to, as far as it was added.
    pub(crate) fn add(&mut self, pages: Pages, attributes: &Attributes) -> Pages {
        self.totals.add(attributes, pages.len());
        let line = match &self.last {
            Some((last, like)) if last.end == pages.start && like == attributes => {
                Pages::new(last.start, pages.end)
            }
            _ => {
                self.totals.mappings += 1;
                pages
            }
        };
        self.last = Some((line, *attributes));
        line
    }

    /// Returns the totals.
    pub(crate) fn totals(&self) -> VmStats {
        VmStats {
            peak: self.totals.mapped,
            ..self.totals
        }
    }
}
