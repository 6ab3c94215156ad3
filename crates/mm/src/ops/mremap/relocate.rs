//! The move of `mremap`: moves pages to another address, and zaps what was there.
//!
//! A move shows its target as *replacing*, so that faults there wait. It shows its source as *zapping*, or also
//! as replacing if it stays mapped. Then the pages move ([`crate::table::move_ptes`]), concurrently with
//! operations that hold no range ([`crate::table::moves`]). The target becomes live, and what is left of the
//! source is zapped, as by `munmap`. Both ranges are held until then, so that a fork waits.
//!
//! One mapping to a program may be several here: equal ones that were made separately, some of them since
//! soft-dirty bits were cleared. The target is one mapping, and is new if one of those is.

use core::ptr::NonNull;

use faultless_paging::{PAGE_SIZE, Pages};
use faultless_trace::Counter;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::notes::Note;
use crate::base::userfault::{Handler, numbers as userfault};
use crate::lock::Edit;
use crate::lock::RangeWriteGuard;
use crate::lock::change::ChangeGuard;
use crate::lock::gap::{Gap, GapRequest, HUGE, Zone};
use crate::ops::mremap::remap_flags::DONTUNMAP;
use crate::ops::mremap::{Remapped, Request, Reservation, SPARE_TO_MOVE};
use crate::space::AddressSpace;
use crate::table::free::FreeTables;
use crate::table::move_ptes::Move;
use crate::tree::SlotValue;
use crate::tree::account::VmStats;
use crate::tree::mapping::{Attributes, Flags, Huge, Locked, Mapping};

/// A move, both ranges of which are shown.
struct Shown {
    /// Whether nothing was mapped at the target.
    is_vacant: bool,
}

impl<M: Machine> AddressSpace<M> {
    /// Reserves a gap of so many bytes and adds it to the lock, if there is one that no other operation holds.
    pub(crate) fn reserve_room(
        &self,
        lock: &mut RangeWriteGuard<'_, M>,
        hint: u64,
        length: u64,
        attributes: &Attributes,
    ) -> Result<Reservation, Errno> {
        let is_pooled = attributes.flags.huge == Huge::Pooled;
        let fills = (length / PAGE_SIZE).is_multiple_of(HUGE);
        let wish = GapRequest {
            hint,
            count: length / PAGE_SIZE,
            zone: Zone::All,
            huge_offset: (is_pooled || attributes.backed.is_none() && fills).then_some(0),
            is_pooled,
        };
        let (mut edit, room) = match lock.find_gap(&wish)? {
            Gap::Here(edit, room) => (edit, room),
            Gap::Elsewhere(room) => return Ok(Reservation::Not(Remapped::With(room))),
            Gap::Later => return Ok(Reservation::Not(Remapped::AfterAll)),
        };
        if !lock.try_extend(room) {
            return Ok(Reservation::Not(Remapped::With(room)));
        }
        edit.cut(room)?;
        edit.fill(room, SlotValue::RESERVED);
        Ok(Reservation::Reserved(room))
    }

    /// Reserves the free pages of `pages`, of which the ends were cut: no stack grows there, and no table is
    /// freed.
    fn reserve(&self, edit: &mut Edit<'_, M>, pages: Pages) {
        self.replace_word(edit, pages, SlotValue::EMPTY, SlotValue::RESERVED);
    }

    /// Releases what was reserved of `pages`, and frees tables there that nothing will use. The pages are
    /// marked like unmapped ones, so that a zap beside them does not leave a table because of them.
    fn give_up_room(&self, lock: RangeWriteGuard<'_, M>, pages: Pages) {
        let mut edit = lock.edit();
        let note = SlotValue::zapping(lock.writer());
        self.replace_word(&mut edit, pages, SlotValue::RESERVED, note);
        let zapping = lock.begin_zap_of_mapped(pages);
        drop(edit);
        zapping.finish();
    }

    fn replace_word(&self, edit: &mut Edit<'_, M>, pages: Pages, old: SlotValue, new: SlotValue) {
        let mut at = pages.start;
        while at < pages.end {
            let run = self.tree().next_until(at, pages.end);
            let hole = Pages::new(at, run.map_or(pages.end, |run| run.pages.start));
            if old.is_empty() && !hole.is_empty() {
                edit.fill(hole, new);
            }
            let Some(run) = run else { break };
            if run.word == old {
                edit.fill(run.pages, new);
            }
            at = run.pages.end;
        }
    }

    fn map_again(
        &self,
        lock: RangeWriteGuard<'_, M>,
        request: &Request,
        target: Pages,
        attributes: Attributes,
        change: VmStats,
    ) -> Result<Remapped, Errno> {
        lock.lock_out_readers(target);
        let mut edit = lock.edit();
        let is_free = self.is_reserved(target);
        let done = self.check_more(&edit, request, &attributes, change);
        let done = done.and_then(|()| match is_free {
            true => self.map_free(&mut edit, target, attributes),
            false => Ok(()),
        });
        if let Err(error) = done {
            drop(edit);
            self.give_up_room(lock, target);
            return Err(error);
        }
        if !is_free {
            self.map_over(lock, edit, target, attributes)?;
        }
        self.memory().count(Counter::Mmap);
        Ok(Remapped::To(target.start * PAGE_SIZE))
    }

    /// Returns the mapping that the source becomes if it stays: without a lock, which moves along, as on Linux.
    /// It is a new mapping, never a neighbour's: the move may replace that one, or it may be replacing
    /// something. Ranges that are replacing are told apart only by their slot values.
    fn staying(&self, word: SlotValue, stays: bool) -> Result<Option<NonNull<Mapping>>, Errno> {
        // SAFETY: the range keeps mappings from being retired.
        let Some(mapping) = (unsafe { word.mapping() }).filter(|_| stays) else {
            return Ok(None);
        };
        let flags = Flags {
            locked: Locked::No,
            ..mapping.attributes().flags
        };
        let unlocked = Attributes {
            flags,
            ..*mapping.attributes()
        };
        Ok(Some(self.allocate_mapping(unlocked)?))
    }

    /// Moves the source to `target`, over whatever is mapped there.
    pub(crate) fn move_to(
        &self,
        lock: RangeWriteGuard<'_, M>,
        request: &Request,
        target: Pages,
        attributes: Attributes,
        change: VmStats,
    ) -> Result<Remapped, Errno> {
        let old_end = request.old + request.old_length;
        let source = Pages::of_bytes(request.old..old_end);
        let mut attributes = attributes.moved(request.old / PAGE_SIZE, target.start);
        // Both ends: what a program sees as one mapping ends where the heap begins.
        let last = old_end.max(request.old + 1) - 1;
        if self.is_newly_mapped(request.old) || self.is_newly_mapped(last) {
            attributes.birth = self.birth();
        }
        // As on Linux, a moved mapping is registered no more, and stores to its pages are not reported, unless its
        // handler learns of the move.
        let follows = attributes.handler.with_feature(userfault::EVENT_REMAP);
        let reported = attributes.handler.reports_writes() && !follows;
        if !follows {
            attributes.handler = Handler::NONE;
        }
        let stays = request.has(DONTUNMAP);
        if source.is_empty() {
            // Shared memory is mapped a second time: the old mapping stays as it is.
            return self.map_again(lock, request, target, attributes, change);
        }
        let gone = Pages::of_bytes(request.old..old_end + request.tail);
        let may_be = |edit: &Edit<'_, M>| {
            self.check_more(edit, request, &attributes, change)?;
            match self.maps.room(edit).is_short_of(SPARE_TO_MOVE) {
                true => Err(Errno::ENOMEM),
                false => Ok(()),
            }
        };
        let record = Move {
            source,
            target: target.start,
            protection: attributes.protection,
            shared: attributes.flags.shared,
            // Where stores are tracked, a moved page has to count as written, so pages move one by one.
            keeps_reports: follows,
            by_tables: self.birth().0 == 0 && !reported,
        };
        let shown = self.show_move(&lock, (&record, gone), target, attributes, stays, &may_be);
        let Shown { is_vacant } = match shown {
            Ok(shown) => shown,
            Err(error) => {
                self.give_up_room(lock, target);
                return Err(error);
            }
        };
        lock.validation_fence();
        if !is_vacant {
            self.tables().zap(self.tree(), target, FreeTables::None);
        }
        self.tables()
            .move_pages(&record, &|| self.maps.note(Note::MOVED));
        let mut edit = lock.edit();
        self.tree().show_replaced(&mut edit, target);
        self.memory().count(Counter::Mmap);
        let had = lock.had();
        if stays {
            self.tree().show_replaced(&mut edit, source);
            drop(edit);
            drop(lock);
        } else {
            // Of the source only tables are left, and the tail behind it. A stack may have grown into pages
            // between that were not mapped.
            let zapping = lock.begin_zap_of_mapped(gone);
            drop(edit);
            self.memory().count(Counter::Munmap);
            zapping.finish();
        }
        self.maps.trace_hold(had, gone);
        Ok(Remapped::To(target.start * PAGE_SIZE))
    }

    /// Whether nothing is mapped in `pages`, each of which is mapped or reserved.
    fn is_reserved(&self, pages: Pages) -> bool {
        self.tree()
            .runs(pages)
            .all(|run| run.word == SlotValue::RESERVED)
    }

    /// Returns a slot value of pages that are one mapping to a program: of a part that was made since
    /// soft-dirty bits were cleared, if there is one. Also returns whether all of the pages have it.
    fn newest_of(&self, pages: Pages) -> Option<(SlotValue, bool)> {
        let mut runs = self.tree().runs(pages);
        let first = runs.next()?;
        let is_new = |word: &SlotValue| {
            // SAFETY: the caller is editing, so nothing is retired.
            unsafe { word.mapping() }.is_some_and(|mapping| self.is_new(mapping.attributes()))
        };
        let is_one = first.pages.end >= pages.end;
        if is_one || is_new(&first.word) {
            return Some((first.word, is_one));
        }
        let newer = runs.map(|run| run.word).find(is_new);
        Some((newer.unwrap_or(first.word), false))
    }

    /// Shows the target as replacing, and the source as replacing if it `stays`; otherwise shows the source,
    /// with the tail behind it, as zapping. Nothing can fail afterwards. `may_be` is asked under the edit that
    /// shows them.
    fn show_move(
        &self,
        lock: &RangeWriteGuard<'_, M>,
        (record, gone): (&Move, Pages),
        target: Pages,
        attributes: Attributes,
        stays: bool,
        may_be: &dyn Fn(&Edit<'_, M>) -> Result<(), Errno>,
    ) -> Result<Shown, Errno> {
        let source = record.source;
        lock.lock_out_readers(gone);
        lock.lock_out_readers(target);
        // No fault brings a page into the source meanwhile: a page without a table at the target would be lost.
        let mut edit = lock.cut(source)?;
        edit.cut(gone)?;
        edit.cut(target)?;
        self.reserve(&mut edit, target);
        let is_vacant = self.is_reserved(target);
        let (old, is_one) = self.newest_of(source).ok_or(Errno::EFAULT)?;
        if !is_one {
            // Equal neighbours become one. A walk may have passed that mapping before it had the others' pages.
            self.link_word_again(old);
            self.maps.set_range(&mut edit, source, old);
        }
        edit.fill(source, old.changing());
        drop(edit);
        lock.validation_fence();
        let prepared = self.tables().prepare_tables(record);
        let prepared = prepared.and_then(|()| self.staying(old, stays));
        let mut edit = lock.edit();
        let words = prepared.and_then(|staying| {
            let word = may_be(&edit).and_then(|()| self.word_for(&edit, target, attributes));
            if let (Err(_), Some(staying)) = (&word, staying) {
                // SAFETY: made above, and nothing else uses it.
                self.memory().unlink(unsafe { staying.as_ref() });
                self.memory().retire_mapping(staying);
            }
            Ok((word?, staying))
        });
        let (word, staying) = match words {
            Ok(words) => words,
            Err(error) => {
                edit.fill(source, old);
                drop(edit);
                return Err(error);
            }
        };
        // Both ranges are mapped for a moment, which the peak must not show.
        let account = self.maps.account_of(&edit);
        let peak = account.get().peak;
        self.tables()
            .forks
            .moves
            .begin_show(gone, target, self.machine());
        self.maps.set_range(&mut edit, target, word.replacing());
        // A truncation that has already passed the target visits it again, and waits there.
        self.link_word_again(word);
        if let Some(staying) = staying {
            // SAFETY: made above, and put into the tree here.
            let word = SlotValue::live(unsafe { staying.as_ref() });
            self.maps.set_range(&mut edit, source, word.replacing());
        } else {
            lock.announce_zap();
            // The cut at a hole's end may be gone: other writers may have emptied the pages beside it.
            let gone = edit.extent(gone);
            self.maps.detach(lock, &mut edit, gone);
            account.set_peak(peak);
        }
        self.tables().forks.moves.end_show(self.machine());
        lock.keep_departure(&edit);
        Ok(Shown { is_vacant })
    }
}
