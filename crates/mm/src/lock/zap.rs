//! What is left of a range while its pages are zapped, or while a new mapping replaces an old one.

use faultless_paging::Pages;
use faultless_sync::ZapGuard;

use crate::base::machine::Machine;
use crate::lock::departing::UnmapGuard;
use crate::lock::shard::{LockDomain, ZapShardGuards};
use crate::lock::{Held, Mappings, span};

impl<'a, M: Machine> Held<'a, M> {
    pub(super) fn begin_zap(self, pages: Pages, departure: UnmapGuard<'a, M>) -> Zap<'a, M> {
        let range = span(pages);
        Zap {
            part: self.part,
            pages,
            elsewhere: self.elsewhere.begin_zap(&range),
            place: self.range.place(),
            range: Some(self.range.begin_zap(range)),
            departure,
        }
    }

    pub(super) fn begin_replace(self, pages: Pages, departure: UnmapGuard<'a, M>) -> Zap<'a, M> {
        let range = span(pages);
        Zap {
            part: self.part,
            pages,
            elsewhere: self.elsewhere.begin_replace(&range),
            place: self.range.place(),
            range: Some(self.range.begin_replace(range)),
            departure,
        }
    }
}

/// A range that is zapped or replacing, in the lists in which it was held.
pub(crate) struct Zap<'a, M: Machine> {
    pub(crate) part: LockDomain,
    pub(crate) pages: Pages,
    /// Its slot in the first list.
    place: usize,
    range: Option<ZapGuard<'a, M>>,
    elsewhere: ZapShardGuards<'a, M>,
    /// Last: it ends with the flush.
    departure: UnmapGuard<'a, M>,
}

impl<'a, M: Machine> Zap<'a, M> {
    /// Creates the zap of a brief writer, with its range in one list only.
    #[inline(always)]
    pub(super) fn brief(
        maps: &'a Mappings<M>,
        part: LockDomain,
        pages: Pages,
        range: ZapGuard<'a, M>,
        departure: UnmapGuard<'a, M>,
    ) -> Self {
        Self {
            part,
            pages,
            place: range.place(),
            range: Some(range),
            elsewhere: ZapShardGuards::none(maps),
            departure,
        }
    }

    /// Returns its pending unmaps.
    pub(crate) fn departure(&self) -> &UnmapGuard<'a, M> {
        &self.departure
    }

    /// Returns the number in this writer's marks.
    pub(crate) fn number(&self) -> usize {
        self.part.writer(self.place)
    }

    /// Ends the zap and its pending unmaps. By reference, because the value is large.
    pub(crate) fn end(&mut self) {
        drop(self.range.take());
        self.elsewhere.end();
        self.departure.end();
    }

    /// Leaves the zap to a fork, without its pending unmaps; see [`ZapGuard::leave`].
    pub(crate) fn leave(&mut self) {
        self.elsewhere.leave();
        if let Some(range) = self.range.take() {
            range.leave();
        }
    }
}
