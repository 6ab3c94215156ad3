//! Room for a mapping that may lie anywhere: chosen, and had, under one edit.
//!
//! In the CPU's own arena, where there are arenas and the mapping is not large; else, or if there is
//! no room, outside of all arenas, which is where Linux would put it; and if there is none either,
//! in any hole.

use core::ops::Range;

use faultless_paging::{PAGE_SIZE, Pages};
use faultless_sync::{RangeGuard, Wish};

use super::{EVERYTHING, Held, RangeLock, span};
use crate::arena::{Elsewhere, LARGEST, Part};
use crate::doomed::Doomed;
use crate::errno::Errno;
use crate::machine::Machine;
use crate::ops::room;
use crate::space::AddressSpace;
use crate::tree::Edit;

/// How often room is chosen that somebody else has just then, before everything is kept from
/// changing.
pub(crate) const ROUNDS: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 4 };

/// Room for a mapping, under the edit under which it was found.
pub(crate) type Room<'a, M> = (RangeLock<'a, M>, Edit<'a, M>, Pages);

/// Writers have got into each other's way often, while there were so many arenas.
struct Crowded(usize);

/// Room that is had.
type Found<'a, M> = (Held<'a, M>, Edit<'a, M>, Pages);

impl<M: Machine> AddressSpace<M> {
    /// Chooses room for a mapping, and waits until the caller alone may change what is there.
    ///
    /// # Errors
    /// `ENOMEM`: there is none, and none will come of what is being zapped.
    pub(crate) fn lock_room(&self, wish: &room::Wish) -> Result<Room<'_, M>, Errno> {
        let guard = self.lock_as_policy();
        let found = loop {
            let found = match self.room_in_arena(wish) {
                Some(found) => found,
                None => self.room_outside(wish)?,
            };
            match found {
                Ok(found) => break found,
                // With the mmap lock nobody is in the way.
                Err(Crowded(_)) if guard.is_some() => {}
                Err(Crowded(seen)) => self.spread_beside(seen),
            }
        };
        let (held, edit, pages) = found;
        let lock = RangeLock {
            space: self,
            guard,
            held,
            // Nothing is taken away where there is room.
            departure: None,
            doomed: Doomed::new(self.memory),
        };
        Ok((lock, edit, pages))
    }

    /// Room in this CPU's arena, if it has one, and that has room which nobody has.
    fn room_in_arena(&self, wish: &room::Wish) -> Option<Result<Found<'_, M>, Crowded>> {
        if wish.zone != room::Zone::All || wish.count > LARGEST {
            return None;
        }
        let part = match wish.hint / PAGE_SIZE {
            0 => Part::Arena(self.arena_of_cpu()?),
            page => {
                let pages = Pages::new(page, page.saturating_add(wish.count));
                let part = self.part_of(pages);
                let is_inside = matches!(part, Part::Arena(_)) && self.may_choose(part, pages);
                is_inside.then_some(part)?
            }
        };
        let was_edited = self.is_edited(part);
        let mut edit = self.edit(part);
        let pages = self.find_room(&mut edit, part, wish).ok()?;
        if wish.hint >= PAGE_SIZE && pages.start != wish.hint / PAGE_SIZE {
            // As if nothing had been named.
            return None;
        }
        let own = self.try_range(part, pages);
        if let Some(crowded) = self.is_crowded_by(&mut edit, was_edited, own.as_ref()) {
            return Some(Err(crowded));
        }
        Some(Ok((self.held_in(part, own?), edit, pages)))
    }

    /// Room outside of arenas; or anywhere, if there is none.
    fn room_outside(&self, wish: &room::Wish) -> Result<Result<Found<'_, M>, Crowded>, Errno> {
        let mut had: Option<(Held<'_, M>, Range<u64>)> = None;
        let mut rounds = 0;
        loop {
            // With every range it may be anywhere.
            let has_all = had.as_ref().is_some_and(|(_, range)| *range == EVERYTHING);
            let part = match has_all {
                true => self.part_of_everything(),
                false => Part::Central,
            };
            let was_edited = self.is_edited(part);
            let mut edit = self.edit(part);
            let wanted = match self.find_room(&mut edit, part, wish) {
                Ok(pages) => {
                    let is_had =
                        |had: &Range<u64>| had.start <= pages.start && pages.end <= had.end;
                    match had.take() {
                        Some((own, range)) if is_had(&range) => return Ok(Ok((own, edit, pages))),
                        Some(other) => {
                            drop(edit);
                            drop(other);
                            continue;
                        }
                        None => {}
                    }
                    let own = self.try_range(part, pages);
                    let crowded = self.is_crowded_by(&mut edit, was_edited, own.as_ref());
                    if let Some(crowded) = crowded {
                        return Ok(Err(crowded));
                    }
                    if let Some(own) = own {
                        return Ok(Ok((self.held_in(part, own), edit, pages)));
                    }
                    rounds += 1;
                    match rounds > ROUNDS {
                        true => Wish::to_change(EVERYTHING),
                        false => Wish::to_change(span(pages)),
                    }
                }
                Err(_) if part != self.part_of_everything() => Wish::to_change(EVERYTHING),
                // With everything to be filled nothing is being zapped.
                Err(error) if !self.is_zapping() => return Err(error),
                Err(_) => Wish::to_fill(EVERYTHING),
            };
            drop(edit);
            drop(had.take());
            let range = wanted.range();
            let held = self.await_range(&wanted, || match range == EVERYTHING {
                true => self.part_of_everything(),
                false => Part::Central,
            });
            had = Some((held, range));
        }
    }

    fn try_range(&self, part: Part, pages: Pages) -> Option<RangeGuard<'_, M>> {
        let wish = Wish::to_change(span(pages));
        self.list_of(part).try_lock(&wish, self.machine())
    }

    fn held_in<'a>(&'a self, part: Part, range: RangeGuard<'a, M>) -> Held<'a, M> {
        Held {
            part,
            meets_zaps: range.meets_zaps(),
            range,
            elsewhere: Elsewhere::none(self),
        }
    }

    /// Whether it is time for more arenas, after somebody was in the way here, or not.
    fn is_crowded_by(
        &self,
        edit: &mut Edit<'_, M>,
        was_edited: bool,
        own: Option<&RangeGuard<'_, M>>,
    ) -> Option<Crowded> {
        let was_busy = was_edited || own.is_none_or(RangeGuard::has_company);
        let is_crowded = edit.is_crowded(was_busy) && self.may_spread();
        is_crowded.then(|| Crowded(self.arena_count()))
    }
}
