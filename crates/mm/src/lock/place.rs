//! Placing a mapping that may lie anywhere: its range is chosen, and held, under the edit that uses it.
//!
//! * With shards, a mapping that is not large goes to this CPU's shard.
//! * Otherwise, or if there is no room, it goes outside all shards, where Linux would put it.
//! * If there is no room there either, it goes to any hole.
//!
//! Mostly no other operation holds any of the range. The list then stays locked until the mapping is in place
//! ([`BriefGuard`]). Otherwise the writer waits for the range.

use faultless_paging::{PAGE_SIZE, Pages};
use faultless_sync::{BriefGuard, LockRequest};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::lock::Edit;
use crate::lock::Mappings;
use crate::lock::gap as room;
use crate::lock::shard::{LARGEST, LockDomain};
use crate::lock::{EVERYTHING, Held, span};
use crate::tune::RANGE_ROUNDS;

/// How a chosen range is held, and the edit under which it was found.
enum Placed<'a, M: Machine> {
    Kept(Edit<'a, M>, BriefGuard<'a, M>, Pages),
    Held(Held<'a, M>, Edit<'a, M>, Pages),
    /// It is not held: see [`Obstacle::Crowded`].
    Crowded(usize),
}

/// Why no range is held.
enum Obstacle {
    /// No hole is large enough. `is_zapping`: the search was everywhere, and a zap in progress may open one.
    Full { is_zapping: bool },
    /// Another operation holds a part of the range.
    Taken(Pages),
    /// Writers have contended often, while there were so many shards.
    Crowded(usize),
}

impl<M: Machine> Mappings<M> {
    /// Chooses a range for a mapping, excludes other operations from it, and calls `map` with it.
    ///
    /// # Errors
    /// `ENOMEM`: no hole is large enough, and no zap in progress will open one; and the errors of `map`.
    #[inline]
    pub(crate) fn in_room<T>(
        &self,
        wish: &room::GapRequest,
        map: impl FnOnce(&mut Edit<'_, M>, Pages) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let guard = self.lock_as_policy();
        'again: loop {
            let parts = [self.shard_for(wish), Some(LockDomain::Central)];
            let mut obstacle = Obstacle::Full { is_zapping: false };
            for part in parts.into_iter().flatten() {
                let was_edited = self.is_edited(part);
                let mut edit = self.edit(part);
                match self.keep_room(&mut edit, part, wish, was_edited) {
                    Ok((pages, _kept)) => return map(&mut edit, pages),
                    Err(other) => obstacle = other,
                }
                drop(edit);
                if let Obstacle::Crowded(seen) = obstacle {
                    // Not with the mmap lock held: this takes that lock, too, if the policy has changed
                    // meanwhile.
                    if guard.is_none() {
                        self.spread_beside(seen);
                    }
                    continue 'again;
                }
            }
            match self.room_in_turn(wish, obstacle)? {
                Placed::Kept(mut edit, _kept, pages) => return map(&mut edit, pages),
                Placed::Held(_held, mut edit, pages) => return map(&mut edit, pages),
                Placed::Crowded(seen) if guard.is_none() => self.spread_beside(seen),
                Placed::Crowded(_) => {}
            }
        }
    }

    /// Returns the shard that is searched first: this CPU's, or the one around the hint, if there is one.
    fn shard_for(&self, wish: &room::GapRequest) -> Option<LockDomain> {
        if wish.zone != room::Zone::All || wish.count > LARGEST {
            return None;
        }
        match wish.hint / PAGE_SIZE {
            0 => Some(LockDomain::Shard(self.shard_of_cpu()?)),
            page => {
                let pages = Pages::new(page, page.saturating_add(wish.count));
                let part = self.part_of(pages);
                let is_inside =
                    matches!(part, LockDomain::Shard(_)) && self.may_choose(part, pages);
                is_inside.then_some(part)
            }
        }
    }

    /// Chooses a range in a lock domain, and holds it if no other operation does.
    #[inline]
    fn keep_room(
        &self,
        edit: &mut Edit<'_, M>,
        part: LockDomain,
        wish: &room::GapRequest,
        was_edited: bool,
    ) -> Result<(Pages, BriefGuard<'_, M>), Obstacle> {
        let Ok(pages) = self.find_unmapped_area(edit, part, wish) else {
            return Err(self.full(part));
        };
        let is_hint = wish.hint < PAGE_SIZE || pages.start == wish.hint / PAGE_SIZE;
        if matches!(part, LockDomain::Shard(_)) && !is_hint {
            // Continue outside, as if the program had named no address.
            return Err(self.full(part));
        }
        let list = self.list_of(part);
        // A zap's range may meet these pages; its marks are in slots that were not chosen.
        let kept = list.try_keep_out_beside_zaps(span(pages), self.machine());
        let was_busy = was_edited || kept.as_ref().is_none_or(BriefGuard::has_company);
        if edit.is_crowded(was_busy) && self.may_spread() {
            return Err(Obstacle::Crowded(self.shard_count()));
        }
        kept.map(|kept| (pages, kept)).ok_or(Obstacle::Taken(pages))
    }

    /// Returns the obstacle, under the edit under which no hole was found: a zap is in its list as long as
    /// its marks are in the tree.
    fn full(&self, part: LockDomain) -> Obstacle {
        Obstacle::Full {
            is_zapping: part == self.part_of_everything() && self.is_zapping(),
        }
    }

    /// Chooses a range outside shards, or anywhere if there is none, and waits for it. Or returns that more
    /// shards than these are due.
    #[cold]
    fn room_in_turn(
        &self,
        wish: &room::GapRequest,
        obstacle: Obstacle,
    ) -> Result<Placed<'_, M>, Errno> {
        let mut obstacle = obstacle;
        let (mut part, mut rounds) = (LockDomain::Central, 0);
        loop {
            let request = match obstacle {
                Obstacle::Taken(pages) if rounds < RANGE_ROUNDS => {
                    LockRequest::to_change(span(pages))
                }
                Obstacle::Taken(_) => LockRequest::to_change(EVERYTHING),
                Obstacle::Crowded(seen) => return Ok(Placed::Crowded(seen)),
                Obstacle::Full { .. } if part != self.part_of_everything() => {
                    LockRequest::to_change(EVERYTHING)
                }
                // A request to fill everything has waited for all zaps.
                Obstacle::Full { is_zapping: false } => return Err(Errno::ENOMEM),
                Obstacle::Full { is_zapping: true } => LockRequest::to_fill(EVERYTHING),
            };
            rounds += 1;
            let range = request.range();
            // With everything held, the range may be anywhere.
            let has_all = range == EVERYTHING;
            let part_of = || match has_all {
                true => self.part_of_everything(),
                false => LockDomain::Central,
            };
            let held = self.await_range(&request, part_of);
            part = part_of();
            let mut edit = self.edit(part);
            obstacle = match self.find_unmapped_area(&mut edit, part, wish) {
                Err(_) => self.full(part),
                Ok(pages) if range.start <= pages.start && pages.end <= range.end => {
                    return Ok(Placed::Held(held, edit, pages));
                }
                Ok(_) => {
                    drop(edit);
                    drop(held);
                    part = LockDomain::Central;
                    let was_edited = self.is_edited(part);
                    let mut edit = self.edit(part);
                    match self.keep_room(&mut edit, part, wish, was_edited) {
                        Ok((pages, kept)) => return Ok(Placed::Kept(edit, kept, pages)),
                        Err(obstacle) => obstacle,
                    }
                }
            };
        }
    }
}
