//! An edit of the mapping tree, under the edit lock of one lock domain or of all.
//!
//! *Writes*: edit locks. The pending unmaps of an edit are counted in its [`UnmapGuard`].

use faultless_sync::SpinGuard;

use crate::base::machine::Machine;
use crate::lock::departing::UnmapGuard;
use crate::lock::shard::{LockDomain, Locks};
use crate::tree::{self, EditLocks, GapIndex};

/// The right to change the mappings of a lock domain.
pub(crate) type Edit<'a, M> = tree::Edit<'a, M, DomainLocks<'a, M>>;

/// The locks of an edit, and its pending unmaps.
pub(crate) struct DomainLocks<'a, M: Machine> {
    domain: LockDomain,
    own: SpinGuard<'a, GapIndex>,
    /// The edit locks of all shards, for an edit of everything.
    shards: Option<Locks<'a>>,
    /// The edit lock of what is in no shard, for an edit of one shard that is counted there.
    counts: Option<SpinGuard<'a, GapIndex>>,
    /// Last field: pending unmaps that are not handed over end after the locks are released.
    departure: UnmapGuard<'a, M>,
}

impl<'a, M: Machine> DomainLocks<'a, M> {
    pub(crate) fn new(
        domain: LockDomain,
        own: SpinGuard<'a, GapIndex>,
        departure: UnmapGuard<'a, M>,
    ) -> Self {
        Self {
            domain,
            own,
            shards: None,
            counts: None,
            departure,
        }
    }

    /// Adds the edit locks of all shards.
    pub(crate) fn with_shards(self, shards: Locks<'a>) -> Self {
        Self {
            shards: Some(shards),
            ..self
        }
    }

    /// Adds the lock of the account in which a shard's changes are counted, if it is not the shard's own.
    pub(crate) fn with_counts(self, counts: Option<SpinGuard<'a, GapIndex>>) -> Self {
        Self { counts, ..self }
    }
}

impl<M: Machine> EditLocks for DomainLocks<'_, M> {
    #[inline]
    fn own(&self) -> &GapIndex {
        &self.own
    }

    #[inline]
    fn own_mut(&mut self) -> &mut GapIndex {
        &mut self.own
    }

    #[inline]
    fn for_each(&mut self, change: &mut dyn FnMut(&mut GapIndex)) {
        change(&mut self.own);
        if let Some(shards) = &mut self.shards {
            shards.for_each_holes(change);
        }
    }
}

impl<'a, M: Machine> Edit<'a, M> {
    /// Returns the lock domain that can be changed.
    pub(crate) fn part(&self) -> LockDomain {
        self.locks.domain
    }

    /// Returns the pending unmaps of the edit.
    pub(crate) fn departure(&self) -> &UnmapGuard<'a, M> {
        &self.locks.departure
    }

    /// Whether changes are counted in the space's own account.
    pub(crate) fn counts_centrally(&self) -> bool {
        !matches!(self.locks.domain, LockDomain::Shard(_)) || self.locks.counts.is_some()
    }

    /// Returns the gap index of the shard, or of what is in no shard.
    pub(crate) fn holes(&mut self) -> &mut GapIndex {
        &mut self.locks.own
    }
}
