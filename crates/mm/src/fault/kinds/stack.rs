//! Stack growth: a fault below a mapping that grows down extends it.
//!
//! No range lock is held, under any policy: growth fills empty slots under the tree's edit lock, which is
//! held for stores alone.
//!
//! * A slot of which the former pages are still being zapped is not empty, so growth never meets a zap.
//! * The guard gap is checked under the lock under which every other mapping is made, so it holds.
//! * Nothing grows while a fork copies the tree: growth could add pages where the fork has already been.

use faultless_paging::{PAGE_SIZE, Page, Pages, Protection};
use faultless_trace::Counter;

use crate::base::machine::Machine;
use crate::space::AddressSpace;
use crate::table::retry::{Blocker, Retry};
use crate::tree::{SlotState, SlotValue};
use crate::tune::GUARD_GAP;

impl<M: Machine> AddressSpace<M> {
    /// Extends the mapping above `page` down to it, if that mapping grows down and may. Returns what the
    /// page's mapping allows now; `None` if there is no mapping.
    pub(crate) fn grow_down(&self, page: Page) -> Result<Option<Protection>, Retry> {
        let _section = self.memory().enter();
        // Look without the lock first: most such faults are plain errors.
        if !self.may_grow_to(page)? {
            return Ok(None);
        }
        let Some(above) = self.above_of(page) else {
            return Ok(None);
        };
        let mut edit = self.maps.edit_around(Pages::new(page.0, above));
        if !self.may_grow_to(page)? {
            return Ok(None);
        }
        if self.above_of(page) != Some(above) {
            return Err(Retry::MappingChanged);
        }
        if edit.is_frozen() {
            // A fork is copying the tree.
            return Err(Retry::MappingChanged);
        }
        let Some(run) = self.tree().next(page.0) else {
            return Ok(None);
        };
        // SAFETY: the edit lock keeps it.
        let SlotState::Live(mapping) = (unsafe { run.word.content() }) else {
            return Err(match run.word.is_replacing() {
                true => Retry::Wait(Blocker::Zap),
                false => Retry::MappingChanged,
            });
        };
        let grown = Pages::new(page.0, run.pages.start);
        let attributes = mapping.attributes();
        if run.pages.end - page.0 > self.longest_stack() {
            return Ok(None);
        }
        let room = self.maps.room(&edit);
        if !room.has(attributes, grown.len())
            || !room.may_lock_more(attributes, grown.len())
            || !self.maps.may_commit(attributes, grown.len())
            || self.is_crowded(page)?
        {
            return Ok(None);
        }
        if edit.cut(grown).is_err() {
            // Linux, too, gives SIGSEGV when a stack cannot grow.
            return Ok(None);
        }
        mapping.add_pages(grown.len(), self.maps.is_divided());
        let change = self.maps.tally(&edit, grown, Some(attributes));
        self.maps.count_change(&edit, &change);
        edit.fill(grown, run.word);
        self.memory().count(Counter::Mmap);
        Ok(Some(mapping.protection()))
    }

    /// Returns the most pages that a stack may have.
    fn longest_stack(&self) -> u64 {
        self.maps.limits.stack.get() / PAGE_SIZE
    }

    /// Whether the next mapping above `page` grows down and is near enough. Withdraws if that cannot be
    /// decided yet. An address that no stack could reach is refused first, so that such a fault does not wait
    /// for a zap.
    fn may_grow_to(&self, page: Page) -> Result<bool, Retry> {
        if page.address() < self.layout().lowest {
            return Ok(false);
        }
        let mut at = page.0;
        while let Some(run) = self.tree().next_slot(at) {
            if run.pages.start.saturating_sub(page.0) >= self.longest_stack() {
                return Ok(false);
            }
            // SAFETY: inside the caller's section.
            match unsafe { run.word.content() } {
                // Old pages between here and a stack must be gone before it grows over them.
                SlotState::Zapping => at = run.pages.end,
                SlotState::Live(m) | SlotState::Changing(m) => {
                    if run.pages.start == page.0 {
                        return Err(Retry::MappingChanged);
                    }
                    if m.grows_down() && at != page.0 {
                        return Err(Retry::Wait(Blocker::Zap));
                    }
                    return Ok(m.grows_down());
                }
                // A move has reserved the place to which the stack would grow.
                SlotState::Reserved => return Err(Retry::Wait(Blocker::Zap)),
                _ => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Returns the end of the range that growth down to `page` concerns: behind the first page that is mapped
    /// above.
    fn above_of(&self, page: Page) -> Option<u64> {
        let mut at = page.0;
        loop {
            let run = self.tree().next_slot(at)?;
            if !run.word.is_zapping() {
                return Some(run.pages.start + 1);
            }
            at = run.pages.end;
        }
    }

    /// Whether the nearest mapping below leaves no guard gap to `page`. As on Linux, a mapping without any
    /// access, or one that grows down itself, needs none. Called under the edit lock.
    fn is_crowded(&self, page: Page) -> Result<bool, Retry> {
        let mut at = page.0;
        while let Some(run) = self.tree().last_before(at) {
            if page.0 - run.pages.end >= GUARD_GAP {
                return Ok(false);
            }
            if run.word.is_zapping() {
                // The mapping below the zapped range counts.
                let slot = self.tree().slot_of(run.pages.end - 1);
                at = slot.map_or(run.pages.start, |slot| slot.pages.start);
                continue;
            }
            if run.word == SlotValue::RESERVED {
                // A move has reserved the range: what it maps there may need a gap or not.
                return Err(Retry::MappingChanged);
            }
            // SAFETY: the edit lock keeps it.
            let mapping = unsafe { run.word.mapping() };
            let minds = mapping.is_some_and(|m| !m.protection().is_none() && !m.grows_down());
            return Ok(minds);
        }
        Ok(false)
    }

    /// Waits until no zap is pending between `page` and the mapping above, and until a replacement or a move
    /// of that mapping has ended.
    #[cold]
    pub(crate) fn await_zaps_below_stack(&self, page: Page) {
        let above = {
            let _section = self.memory().enter();
            let mut at = page.0;
            loop {
                match self.tree().next_slot(at) {
                    Some(run) if run.word.is_zapping() => at = run.pages.end,
                    Some(run) => break run.pages.start.max(at),
                    None => break at,
                }
            }
        };
        let above = Pages::new(above, above + 1);
        self.maps
            .await_zaps_and_replacing(Pages::new(page.0, above.end));
        if self.is_coming(above.start) {
            // A move is in no list of zaps: it holds its range until it ends.
            drop(self.maps.hold_range(above));
        }
    }

    /// Whether a mapping still replaces another at a page, or a move has reserved it.
    fn is_coming(&self, page: u64) -> bool {
        let _section = self.memory().enter();
        let word = self.tree().find(page).word;
        word.is_replacing() || word == SlotValue::RESERVED
    }
}
