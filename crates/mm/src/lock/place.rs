//! Room for a mapping that may lie anywhere: chosen, and had, under the edit under which it is used.
//!
//! In the CPU's own arena, where there are arenas and the mapping is not large; else, or if there is
//! no room, outside of all arenas, which is where Linux would put it; and if there is none either,
//! in any hole. Mostly nobody has anything of it, and it is kept so until the mapping is there
//! ([`BriefGuard`]); else it is waited for.

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

/// How room is had, and the edit under which it was found.
enum Placed<'a, M: Machine> {
    Kept(Edit<'a, M>, BriefGuard<'a, M>, Pages),
    Held(Held<'a, M>, Edit<'a, M>, Pages),
    /// It is not: see [`Obstacle::Crowded`].
    Crowded(usize),
}

/// Why room is not had.
enum Obstacle {
    /// There is none. Whether some may come of what was being zapped, for who looked everywhere.
    Full { is_zapping: bool },
    /// Somebody has it just then.
    Taken(Pages),
    /// Writers have got into each other's way often, while there were so many arenas.
    Crowded(usize),
}

impl<M: Machine> Mappings<M> {
    /// Chooses room for a mapping, where nobody else changes anything, and lets `map` use it.
    ///
    /// # Errors
    /// `ENOMEM`: there is none, and none will come of what is being zapped; and those of `map`.
    #[inline]
    pub(crate) fn in_room<T>(
        &self,
        wish: &room::GapRequest,
        map: impl FnOnce(&mut Edit<'_, M>, Pages) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let guard = self.lock_as_policy();
        'again: loop {
            let parts = [self.arena_for(wish), Some(LockDomain::Central)];
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
                    // Not with the mmap lock, which it takes, too, if the policy is another by now.
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

    /// The arena in which room is looked for first: this CPU's, if it has one, or where the hint is.
    fn arena_for(&self, wish: &room::GapRequest) -> Option<LockDomain> {
        if wish.zone != room::Zone::All || wish.count > LARGEST {
            return None;
        }
        match wish.hint / PAGE_SIZE {
            0 => Some(LockDomain::Shard(self.arena_of_cpu()?)),
            page => {
                let pages = Pages::new(page, page.saturating_add(wish.count));
                let part = self.part_of(pages);
                let is_inside =
                    matches!(part, LockDomain::Shard(_)) && self.may_choose(part, pages);
                is_inside.then_some(part)
            }
        }
    }

    /// Room in a part, if nobody has anything of it.
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
            // As if nothing had been named.
            return Err(self.full(part));
        }
        let list = self.list_of(part);
        // What is zapped there is noted in slots that were not chosen.
        let kept = list.try_keep_out_beside_zaps(span(pages), self.machine());
        let was_busy = was_edited || kept.as_ref().is_none_or(BriefGuard::has_company);
        if edit.is_crowded(was_busy) && self.may_spread() {
            return Err(Obstacle::Crowded(self.arena_count()));
        }
        kept.map(|kept| (pages, kept)).ok_or(Obstacle::Taken(pages))
    }

    /// Under the edit under which no room was found: what is zapped is noted until it has ended.
    fn full(&self, part: LockDomain) -> Obstacle {
        Obstacle::Full {
            is_zapping: part == self.part_of_everything() && self.is_zapping(),
        }
    }

    /// Room outside of arenas for who waits his turn; or anywhere, if there is none. Or that it is time
    /// for more arenas than these.
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
                // With everything to be filled nothing is being zapped.
                Obstacle::Full { is_zapping: false } => return Err(Errno::ENOMEM),
                Obstacle::Full { is_zapping: true } => LockRequest::to_fill(EVERYTHING),
            };
            rounds += 1;
            let range = request.range();
            // With every range it may be anywhere.
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
