//! What an address space has mapped, in numbers: pages by kind, and mappings.
//!
//! Limits compare with these, and `/proc` shows them. Each is a function of the mapping tree
//! alone (the verifier counts again), and changes where the tree changes: under the edit lock, by
//! what a [`AccountDelta`] finds in the range that is about to change. A fault changes no mapping, and so
//! no number here.
//!
//! *Mappings* are counted as Linux counts its own: the lines of `/proc/PID/maps`. The tree keeps
//! no object for such a line. But a line begins at each page whose attributes are not those of the
//! page before it, and a change can make or unmake such beginnings only inside its range and at
//! the first page behind it. So a tally looks at the range and at one page on either side, and the
//! count stays exact: what began there before goes, what begins there now comes.
//!
//! What is in an arena has an account of its own there ([`crate::lock::shard`]), which says by how much
//! it has changed: differences, which wrap. Who edits everything *settles* them, that is, adds them
//! to the space's.
//!
//! Written lines: the space's own, or the arena's, by writers and by stacks that grow; for what is
//! committed also one of the CPU's.

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
    /// Pages that are private and may be written, without stacks.
    pub data: u64,
    /// Pages of mappings that grow down.
    pub stack: u64,
    /// Pages that may be executed and not written, without stacks.
    pub code: u64,
    /// Pages that stay in memory (`mlock`).
    pub locked: u64,
    /// Pages that may come to need memory: private ones that may be written, without
    /// `MAP_NORESERVE`.
    pub committed: u64,
    /// Mappings: lines of `/proc/PID/maps`.
    pub mappings: u64,
    /// The most pages that were ever mapped. Where CPUs have parts of the space of their own, it is
    /// not exact: the most of each part, with what the others have when it is looked at.
    pub peak: u64,
}

impl Attributes {
    /// Whether its pages count against the limit of data.
    pub(crate) fn is_data(&self) -> bool {
        self.protection.write && !self.flags.shared && !self.flags.grows_down
    }

    /// Whether its pages may come to need memory that nothing else accounts for.
    pub(crate) fn commits(&self) -> bool {
        self.protection.write && !self.flags.shared && !self.flags.no_reserve
    }
}

impl VmStats {
    /// Adds `pages` with these attributes; or takes them away: arithmetic wraps.
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

    /// Both changes.
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

/// An address space's totals. Written under the tree's edit lock; read by anybody, who may see a
/// change half done.
#[derive(Default)]
pub(crate) struct Account {
    pub(crate) mapped: Local,
    pub(crate) data: Local,
    stack: Local,
    code: Local,
    pub(crate) locked: Local,
    committed: Local,
    pub(crate) mappings: Local,
    /// The most before the last change that took something away.
    peak: Local,
}

impl Account {
    /// What it says now.
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

    /// Counts a change. Most change little.
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

    /// Adds an arena's account, from the one before to the next, to this one. Under all edit locks.
    pub(crate) fn settle(&self, arena: &Account) {
        let more = arena.get();
        if more == VmStats::default() {
            return;
        }
        let now = self.get();
        self.set(&VmStats {
            peak: higher(now.peak, now.mapped.wrapping_add(more.peak)),
            ..now.and(&more)
        });
        arena.set(&VmStats::default());
    }

    /// Whether there are so many mappings more than when it was last settled that that has to be done.
    pub(crate) fn has_used_quota(&self) -> bool {
        self.mappings.get().cast_signed() > (QUOTA - SLACK).cast_signed()
    }

    /// The most that was ever mapped is this, or what is mapped now.
    pub(crate) fn set_peak(&self, pages: u64) {
        self.peak.set(pages);
    }
}

/// The greater of two numbers of pages, of an account that says differences.
pub(crate) fn higher(one: u64, other: u64) -> u64 {
    one.cast_signed().max(other.cast_signed()).cast_unsigned()
}

/// What changes when all pages of a range become something else. Is shown the range's runs.
pub(crate) struct AccountDelta<'s> {
    pages: Pages,
    change: VmStats,
    /// The run seen last, or what comes before the range: its end and what is true of it.
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
    /// Of `pages`; nothing was shown yet.
    ///
    /// # Safety
    /// Nothing in the tree is released during `'s`: the caller is editing, and in a section if it counts
    /// pages of what is in other parts, too. The neighbours are those of `pages`, seen under the same edit.
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

    /// What is mapped of the range as far as the run seen last, at its end.
    fn at(&self, page: u64) -> Option<&'s Attributes> {
        self.last
            .filter(|&(end, _)| end == page)
            .map(|(_, last)| last)
    }

    /// A run of the range that is mapped.
    pub(crate) fn see(&mut self, run: Pages, attributes: &'s Attributes) {
        if !is_one(self.at(run.start), Some(attributes)) {
            self.change.mappings = self.change.mappings.wrapping_sub(1);
        }
        self.last = Some((run.end, attributes));
        self.change.add(attributes, run.len().wrapping_neg());
    }

    /// The change, if the range becomes `new`: differences, which wrap.
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

/// The totals of runs that are shown in order.
#[derive(Default)]
pub(crate) struct Sum {
    totals: VmStats,
    last: Option<(Pages, Attributes)>,
}

impl Sum {
    /// These pages come next. The mapping that they are a part of, as far as it was shown.
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

    /// All of them.
    pub(crate) fn totals(&self) -> VmStats {
        VmStats {
            peak: self.totals.mapped,
            ..self.totals
        }
    }
}
