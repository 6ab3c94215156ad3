//! What is kept of a range whose pages are taken away, or that something new has taken the place of.

use faultless_paging::Pages;
use faultless_sync::ZapGuard;

use crate::base::machine::Machine;
use crate::lock::departing::UnmapGuard;
use crate::lock::shard::{LockDomain, ZapShardGuards};
use crate::lock::{Held, span};

impl<'a, M: Machine> Held<'a, M> {
    pub(super) fn begin_zap(self, pages: Pages, departure: UnmapGuard<'a, M>) -> Zap<'a, M> {
        let range = span(pages);
        Zap {
            part: self.part,
            pages,
            elsewhere: self.elsewhere.begin_zap(&range),
            range: self.range.begin_zap(range),
            departure,
        }
    }

    pub(super) fn begin_replace(self, pages: Pages, departure: UnmapGuard<'a, M>) -> Zap<'a, M> {
        let range = span(pages);
        Zap {
            part: self.part,
            pages,
            elsewhere: self.elsewhere.begin_replace(&range),
            range: self.range.begin_replace(range),
            departure,
        }
    }
}

/// A range that is being zapped, or replacing, in the lists in which it was had.
pub(crate) struct Zap<'a, M: Machine> {
    pub(crate) part: LockDomain,
    pub(crate) pages: Pages,
    range: ZapGuard<'a, M>,
    elsewhere: ZapShardGuards<'a, M>,
    /// Last: it ends with the flush.
    departure: UnmapGuard<'a, M>,
}

impl<'a, M: Machine> Zap<'a, M> {
    /// The number by which this writer's notes are known.
    pub(crate) fn number(&self) -> usize {
        self.part.writer(self.range.place())
    }

    /// See [`ZapGuard::leave`].
    pub(crate) fn leave(self) -> UnmapGuard<'a, M> {
        self.elsewhere.leave();
        self.range.leave();
        self.departure
    }
}
