//! What an address space has mapped, in numbers: pages by kind, and mappings.
//!
//! Limits compare with these, and `/proc` shows them. Each is a function of the mapping tree
//! alone (the verifier counts again), and changes where the tree changes: under the edit lock, by
//! what a [`Tally`] finds in the range that is about to change. A fault changes no mapping, and so
//! no number here.
//!
//! *Mappings* are counted as Linux counts its own: the lines of `/proc/PID/maps`. The tree keeps
//! no object for such a line. But a line begins at each page whose attributes are not those of the
//! page before it, and a change can make or unmake such beginnings only inside its range and at
//! the first page behind it. So a tally looks at the range and at one page on either side, and the
//! count stays exact: what began there before goes, what begins there now comes.
//!
//! Written lines: the space's own, by writers and by stacks that grow; for what is committed also
//! one of the CPU's.

use faultless_paging::Pages;
use faultless_sync::atomic::Local;

use crate::machine::Machine;
use crate::mapping::{Attributes, Locked};
use crate::space::AddressSpace;
use crate::tree::{Edit, PAGES, Run};

/// What an address space has mapped: pages, and the number of mappings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
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
    /// The most pages that were ever mapped.
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

impl Totals {
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

    /// The same after a change.
    pub(crate) fn after(self, change: &Totals) -> Totals {
        Totals {
            mapped: self.mapped.wrapping_add(change.mapped),
            data: self.data.wrapping_add(change.data),
            stack: self.stack.wrapping_add(change.stack),
            code: self.code.wrapping_add(change.code),
            locked: self.locked.wrapping_add(change.locked),
            committed: self.committed.wrapping_add(change.committed),
            mappings: self.mappings.wrapping_add(change.mappings),
            // Of before: what is now need not last.
            peak: self.peak.max(self.mapped),
        }
    }
}

/// An address space's totals. Written under the tree's edit lock; read by anybody, who may see a
/// change half done.
#[derive(Default)]
pub(crate) struct Account {
    mapped: Local,
    data: Local,
    stack: Local,
    code: Local,
    locked: Local,
    committed: Local,
    mappings: Local,
    peak: Local,
}

impl Account {
    /// What it says now.
    pub(crate) fn get(&self) -> Totals {
        let mapped = self.mapped.get();
        Totals {
            mapped,
            data: self.data.get(),
            stack: self.stack.get(),
            code: self.code.get(),
            locked: self.locked.get(),
            committed: self.committed.get(),
            mappings: self.mappings.get(),
            peak: self.peak.get().max(mapped),
        }
    }

    fn set(&self, totals: &Totals) {
        self.mapped.set(totals.mapped);
        self.data.set(totals.data);
        self.stack.set(totals.stack);
        self.code.set(totals.code);
        self.locked.set(totals.locked);
        self.committed.set(totals.committed);
        self.mappings.set(totals.mappings);
        self.peak.set(totals.peak);
    }

    /// The most that was ever mapped is this, or what is mapped now.
    pub(crate) fn set_peak(&self, pages: u64) {
        self.peak.set(pages);
    }
}

/// What changes when all pages of a range become something else. Is shown the range's runs, and
/// those of the page before and the page behind it.
pub(crate) struct Tally<'s> {
    pages: Pages,
    change: Totals,
    /// The run seen last: its end and what is true of it.
    last: Option<(u64, &'s Attributes)>,
    before: Option<&'s Attributes>,
    behind: Option<&'s Attributes>,
}

impl<'s> Tally<'s> {
    /// Nothing was shown yet.
    pub(crate) fn new(pages: Pages) -> Self {
        Self {
            pages,
            change: Totals::default(),
            last: None,
            before: None,
            behind: None,
        }
    }

    /// The pages whose runs are to be shown, in order.
    pub(crate) fn window(&self) -> Pages {
        let Pages { start, end } = self.pages;
        Pages::new(start.saturating_sub(1), (end + 1).min(PAGES))
    }

    /// A run of the window that is mapped.
    pub(crate) fn see(&mut self, run: &Run, attributes: &'s Attributes) {
        let Pages { start, end } = run.pages;
        let goes_on = self
            .last
            .is_some_and(|(at, last)| at == start && last == attributes);
        self.last = Some((end, attributes));
        if start < self.pages.start {
            self.before = Some(attributes);
        } else if !goes_on {
            self.change.mappings = self.change.mappings.wrapping_sub(1);
        }
        if end > self.pages.end {
            self.behind = Some(attributes);
        }
        let gone = run.pages.and(self.pages).len();
        self.change.add(attributes, gone.wrapping_neg());
    }

    /// The change, if the range becomes `new`: differences, which wrap.
    pub(crate) fn end(mut self, new: Option<&Attributes>) -> Totals {
        if self.pages.is_empty() {
            return Totals::default();
        }
        let mut begins = u64::from(self.behind.is_some_and(|behind| new != Some(behind)));
        if let Some(new) = new {
            self.change.add(new, self.pages.len());
            begins += u64::from(self.before != Some(new));
        }
        self.change.mappings = self.change.mappings.wrapping_add(begins);
        self.change
    }
}

/// The totals of runs that are shown in order.
#[derive(Default)]
pub(crate) struct Sum {
    totals: Totals,
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
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            peak: self.totals.mapped,
            ..self.totals
        }
    }
}

impl<M: Machine> AddressSpace<M> {
    /// What is mapped, in numbers. Beside writers it may be a change half done.
    pub fn totals(&self) -> Totals {
        self.account.get()
    }

    /// What changes if all of `pages` become `new`, or are unmapped. Nothing is changed.
    pub(crate) fn tally(
        &self,
        _edit: &Edit<'_, M>,
        pages: Pages,
        new: Option<&Attributes>,
    ) -> Totals {
        let mut tally = Tally::new(pages);
        for run in self.tree.runs(tally.window()) {
            // SAFETY: the edit lock keeps what the tree holds from being retired.
            if let Some(mapping) = unsafe { run.word.mapping() } {
                tally.see(&run, mapping.attributes());
            }
        }
        tally.end(new)
    }

    /// Counts a change that is made under this edit.
    pub(crate) fn count_change(&self, _edit: &Edit<'_, M>, change: &Totals) {
        self.account.set(&self.account.get().after(change));
        self.memory.commit(change.committed);
    }

    /// This is what a child has whose tree was copied, and which nobody else knows.
    pub(crate) fn begin_account(&self, totals: &Totals) {
        self.account.set(totals);
        self.memory.commit(totals.committed);
    }
}
