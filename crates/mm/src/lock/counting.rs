//! Which account counts the changes of an edit.
//!
//! *Writes*: the account of the lock domain, under its edit lock, and this CPU's committed pages.

use faultless_paging::Pages;

use crate::base::machine::Machine;
use crate::lock::shard::{LockDomain, Shards};
use crate::lock::{Edit, Mappings};
use crate::tree::account::{Account, AccountDelta, VmStats, higher};
use crate::tree::mapping::Attributes;

impl<M: Machine> Mappings<M> {
    /// Returns what is mapped, in numbers. While writers run, they may include half of a change.
    pub(crate) fn totals(&self) -> VmStats {
        let own = self.account.get();
        let shards = self.shards().into_iter().flat_map(Shards::all);
        shards.fold(own, |sum, shard| {
            let more = shard.account.get();
            VmStats {
                peak: higher(sum.peak, sum.mapped.wrapping_add(more.peak)),
                ..sum.and(&more)
            }
        })
    }

    /// Returns the account that counts the changes of an edit.
    pub(crate) fn account_of(&self, edit: &Edit<'_, M>) -> &Account {
        match (edit.part(), self.shards()) {
            (LockDomain::Shard(number), Some(shards)) if !edit.counts_centrally() => {
                &shards.get(number).account
            }
            _ => &self.account,
        }
    }

    /// Returns how counts change if all of `pages` become `new`, or are unmapped. Changes nothing.
    pub(crate) fn tally(
        &self,
        _edit: &Edit<'_, M>,
        pages: Pages,
        new: Option<&Attributes>,
    ) -> VmStats {
        // SAFETY: the edit lock keeps what the tree holds from being retired.
        let mut tally = unsafe { AccountDelta::new(pages, self.tree.beside(pages)) };
        for run in self.tree.runs(pages) {
            // SAFETY: as above.
            if let Some(mapping) = unsafe { run.word.mapping() } {
                tally.see(run.pages, mapping.attributes());
            }
        }
        tally.end(new)
    }

    /// Counts a change that is made under this edit.
    pub(crate) fn count_change(&self, edit: &Edit<'_, M>, change: &VmStats) {
        self.account_of(edit).apply(change);
        self.memory.commit(change.committed);
    }

    /// Sets the totals of a child that nothing else knows yet, after its tree was copied.
    pub(crate) fn begin_account(&self, totals: &VmStats) {
        self.account.set(totals);
        self.memory.commit(totals.committed);
    }
}
