//! `mremap`: shrinks, grows and moves a part of one mapping.
//!
//! The order of checks is Linux 6.12's, and so is what an error leaves behind: the tail of a range that was to
//! shrink, and what was mapped at a fixed destination, are unmapped before the source is checked.
//!
//! `relocate.rs` moves the pages.

mod relocate;

use faultless_paging::{PAGE_SIZE, Page, Pages};
use faultless_trace::{Counter, Kind};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::base::notes::Note;
use crate::base::userfault::numbers as userfault;
use crate::base::userfault::queue::Message;
use crate::lock::Edit;
use crate::lock::RangeWriteGuard;
use crate::ops::pooled::Reservations;
use crate::ops::userfault::events::Change;
use crate::probe::space::install_probes;
use crate::space::AddressSpace;
use crate::tree::PAGES;
use crate::tree::account::VmStats;
use crate::tree::mapping::Attributes;
use crate::tune::RANGE_ROUNDS;

/// `MREMAP_*` flags.
#[allow(missing_docs)]
pub mod remap_flags {
    pub const MAYMOVE: u32 = 1;
    pub const FIXED: u32 = 2;
    pub const DONTUNMAP: u32 = 4;
}
use remap_flags::{DONTUNMAP, FIXED, MAYMOVE};

/// A move is refused unless so many mappings could be added: Linux avoids a failure in the middle.
pub(crate) const SPARE_TO_MOVE: u64 = 4;

/// Returns the pages that a byte range touches, as far as there are any.
fn touched(start: u64, length: u64) -> Pages {
    let end = start.saturating_add(length).div_ceil(PAGE_SIZE).min(PAGES);
    Pages::new((start / PAGE_SIZE).min(end), end)
}

/// The request, in bytes. Lengths are whole pages.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) old: u64,
    pub(crate) old_length: u64,
    /// The length of what lies behind that and is unmapped if the rest moves.
    pub(crate) tail: u64,
    pub(crate) length: u64,
    flags: u32,
    /// The fixed target, or a hint.
    new: u64,
}

/// The result of one attempt.
pub(crate) enum Remapped {
    /// The mapping is now at this address.
    To(u64),
    /// Try again when no zap is pending in these pages.
    After(Pages),
    /// The same, for all pages.
    AfterAll,
    /// Try again with the range of these pages, which are free, but held by another operation.
    With(Pages),
}

/// A target for a move.
pub(crate) enum Reservation {
    /// These pages are reserved.
    Reserved(Pages),
    /// None yet.
    Not(Remapped),
}

/// Whether a mapping could grow in place.
enum Growth {
    Done,
    /// Something is mapped behind it.
    Barred,
    /// It can, once no zap is pending in these pages.
    After(Pages),
}

impl Request {
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Returns the pages that change at the old address: those that are unmapped, moved, or added behind.
    fn source(&self) -> Pages {
        let length = match self.has(FIXED | DONTUNMAP) {
            true => self.old_length,
            false => self.old_length.max(self.length),
        };
        touched(self.old, length.max(1))
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Gives the `old_length` bytes at `old` the length `length`: in place, or, if `flags` allow it, elsewhere
    /// (at `new`, if that is fixed). Returns their new address.
    ///
    /// # Errors
    /// As Linux's `mremap`: `EINVAL`; `EFAULT` where nothing is mapped, or more than one mapping, or for more
    /// of a device; `ENOMEM` where there is no room or no memory, or at a limit; `EAGAIN` for what may not be
    /// locked; `EPERM` below [`crate::Layout::lowest`], and where a mapping is sealed.
    pub fn mremap(
        &self,
        old: u64,
        old_length: u64,
        length: u64,
        flags: u32,
        new: u64,
    ) -> Result<u64, Errno> {
        let start = self.trace_start();
        let changes =
            self.begin_changes(old, old_length, length, (flags & FIXED != 0).then_some(new));
        let result = self.remap(old, old_length, length, flags, new);
        self.report_changes(changes, old, flags & DONTUNMAP != 0, result);
        let at = *result.as_ref().unwrap_or(&old);
        if result.is_ok() && length > old_length {
            // The new pages of a locked mapping are populated from the start.
            let pages = Pages::of_bytes(at..at + length.next_multiple_of(PAGE_SIZE));
            let was = old_length.div_ceil(PAGE_SIZE);
            install_probes(self, Pages::new(pages.start + was, pages.end));
            self.populate_locked(Pages::new(pages.start + was, pages.end));
        }
        self.trace_result(Kind::Mremap, start, (at, length), result)
    }

    /// Begins what is reported of a move: what is unmapped at the target, the move itself, what is cut off, and that
    /// nothing is left at the old place.
    #[inline]
    fn begin_changes(
        &self,
        old: u64,
        old_length: u64,
        length: u64,
        target: Option<u64>,
    ) -> Option<[(Pages, Change<M>); 4]> {
        if !self.maps.has_note(Note::USERFAULT) {
            return None;
        }
        let all = touched(old, old_length);
        let moved = Pages::new(all.start, touched(old, length).end.min(all.end));
        let replaced = target.map_or(Pages::new(0, 0), |new| touched(new, length));
        let begin = |pages, feature| (pages, self.begin_change_of(pages, feature));
        Some([
            begin(replaced, userfault::EVENT_UNMAP),
            begin(moved, userfault::EVENT_REMAP),
            begin(Pages::new(moved.end, all.end), userfault::EVENT_UNMAP),
            begin(moved, userfault::EVENT_UNMAP),
        ])
    }

    /// Reports them, as far as they have come about. `stays`: the old place is still mapped.
    #[inline]
    fn report_changes(
        &self,
        changes: Option<[(Pages, Change<M>); 4]>,
        old: u64,
        stays: bool,
        result: Result<u64, Errno>,
    ) {
        let (Some([replaced, moved, cut, left]), Ok(to)) = (changes, result) else {
            return;
        };
        let unmapped = |(pages, change): (Pages, Change<M>)| {
            self.report_unmap(Some(change), pages, !pages.is_empty());
        };
        unmapped(replaced);
        if to != old {
            moved.1.report(Message::Remap {
                from: old,
                to,
                length: moved.0.len() * PAGE_SIZE,
            });
        }
        unmapped(cut);
        if to != old && !stays {
            unmapped(left);
        }
    }

    fn remap(
        &self,
        old: u64,
        old_length: u64,
        length: u64,
        flags: u32,
        new: u64,
    ) -> Result<u64, Errno> {
        let has = |flag| flags & flag != 0;
        let resizes = old_length != length;
        if flags & !(MAYMOVE | FIXED | DONTUNMAP) != 0
            || has(FIXED | DONTUNMAP) && !has(MAYMOVE)
            || has(DONTUNMAP) && resizes
            || !old.is_multiple_of(PAGE_SIZE)
        {
            return Err(Errno::EINVAL);
        }
        // Linux lets lengths wrap to 0.
        let round = |length: u64| length.checked_next_multiple_of(PAGE_SIZE).unwrap_or(0);
        let mut request = Request {
            old,
            old_length: round(old_length),
            tail: 0,
            length: round(length),
            flags,
            new,
        };
        if request.length == 0 {
            return Err(Errno::EINVAL);
        }
        match self.pooled_at(old / PAGE_SIZE) {
            Some(_) => self.check_move_of_pool(&mut request)?,
            None => self.check_pool(touched(old, request.old_length))?,
        }
        if has(FIXED) {
            self.check_pool(touched(new, request.length))?;
        }
        let none = Pages::new(0, 0);
        // What is cut off, and what is replaced.
        let (all, kept) = (request.source(), touched(old, request.length));
        let cut = Pages::new(kept.end.clamp(all.start, all.end), all.end);
        let replaced = match has(FIXED) {
            true => touched(new, request.length),
            false => Pages::new(0, 0),
        };
        let reserved = [cut, replaced].map(|pages| self.reservations(pages));
        let (mut target, mut filled) = match has(FIXED) {
            true => (touched(new, request.length), touched(new, request.length)),
            false => (none, none),
        };
        let mut rounds = 0;
        loop {
            let lock = match rounds > RANGE_ROUNDS {
                true => self.maps.lock_everything_to_fill(filled),
                false => self.maps.lock_both([request.source(), target], filled),
            };
            match self.attributes_at(old) {
                None => return Err(Errno::EFAULT),
                Some(attributes) if attributes.flags.sealed => return Err(Errno::EPERM),
                Some(_) => {}
            }
            let result = match has(FIXED | DONTUNMAP) {
                true => self.remap_to(lock, request),
                false => self.remap_near(lock, request),
            };
            match result {
                Ok(Remapped::To(at)) => {
                    reserved.into_iter().flatten().for_each(Reservations::end);
                    return Ok(at);
                }
                Ok(Remapped::After(zaps)) => filled = zaps,
                Ok(Remapped::AfterAll) => (filled, rounds) = (self.all_pages(), RANGE_ROUNDS + 1),
                Ok(Remapped::With(room)) => (target, rounds) = (room, rounds + 1),
                Err(error) => return Err(error),
            }
        }
    }

    /// Checks a move of a mapping of the pool of huge pages, in whole ones.
    #[cold]
    fn check_move_of_pool(&self, request: &mut Request) -> Result<(), Errno> {
        let size = Memory::<M>::huge_page_size();
        let round = |length: u64| length.checked_next_multiple_of(size).unwrap_or(0);
        request.old_length = round(request.old_length);
        request.length = round(request.length);
        let is_aligned = |address: u64| address.is_multiple_of(size);
        let is_placed = !request.has(FIXED) || is_aligned(request.new);
        let may_stay = !request.has(DONTUNMAP);
        match may_stay
            && is_aligned(request.old)
            && is_placed
            && request.length <= request.old_length
        {
            true => Ok(()),
            false => Err(Errno::EINVAL),
        }
    }

    /// Shrinks, grows in place, or moves to a gap.
    fn remap_near(
        &self,
        mut lock: RangeWriteGuard<'_, M>,
        request: Request,
    ) -> Result<Remapped, Errno> {
        let old = request.old;
        if request.length <= request.old_length {
            let tail = request.old_length - request.length;
            self.unmap_tail(lock, old, request.length, tail)?;
            return Ok(Remapped::To(old));
        }
        let attributes = self.check_source(&lock, &request, VmStats::default())?;
        match self.grow_in_place(&lock, &request, attributes)? {
            Growth::Done => {
                self.memory().count(Counter::Mmap);
                return Ok(Remapped::To(old));
            }
            Growth::After(zaps) => return Ok(Remapped::After(zaps)),
            Growth::Barred if !request.has(MAYMOVE) => return Err(Errno::ENOMEM),
            Growth::Barred => {}
        }
        if self.maps.room(&lock.edit()).is_short_of(SPARE_TO_MOVE) {
            return Err(Errno::ENOMEM);
        }
        let none = VmStats::default();
        match self.reserve_room(&mut lock, 0, request.length, &attributes)? {
            Reservation::Reserved(room) => self.move_to(lock, &request, room, attributes, none),
            Reservation::Not(why) => Ok(why),
        }
    }

    /// Moves to a fixed address, or moves and leaves the old range mapped.
    fn remap_to(
        &self,
        mut lock: RangeWriteGuard<'_, M>,
        request: Request,
    ) -> Result<Remapped, Errno> {
        let Request {
            old,
            old_length,
            length,
            new,
            ..
        } = request;
        let end = self.layout().end;
        // The end of the old range wraps, as on Linux.
        let overlaps = old.wrapping_add(old_length) > new && new.wrapping_add(length) > old;
        if !new.is_multiple_of(PAGE_SIZE) || length > end || new > end - length || overlaps {
            return Err(Errno::EINVAL);
        }
        // Linux checks this before it unmaps anything.
        if self.maps.room(&lock.edit()).is_short_of(SPARE_TO_MOVE + 2) {
            return Err(Errno::ENOMEM);
        }
        let target = Pages::of_bytes(new..new + length);
        if request.has(FIXED) {
            self.check_seals(target)?;
        }
        let mut request = request;
        let tail = Pages::of_bytes(old + length.min(old_length)..old.saturating_add(old_length));
        let checked = if old_length > length {
            request.old_length = length;
            request.tail = old_length - length;
            self.check_range(old + length, old_length - length)
                .and_then(|stop| self.check_seals(Pages::of_bytes(old + length..stop)))
        } else {
            Ok(())
        };
        // Linux has unmapped these before the checks below.
        let gone = |pages: Pages| match pages.end <= end / PAGE_SIZE {
            true => self.maps.tally(&lock.edit(), pages, None),
            false => VmStats::default(),
        };
        let change = match request.has(FIXED) {
            true => gone(target).and(&gone(tail)),
            false => gone(tail),
        };
        let checked = checked.and_then(|()| {
            // A source without a length, which is unmapped with the target.
            match request.has(FIXED) && target.contains(Page::containing(old)) {
                true => Err(Errno::EFAULT),
                false => self.check_source(&lock, &request, change),
            }
        });
        let checked = checked.and_then(|attributes| match request.has(FIXED) {
            true if new < self.layout().lowest => Err(Errno::EPERM),
            _ => Ok(attributes),
        });
        let attributes = match checked {
            Ok(attributes) => attributes,
            Err(error) => {
                // As far as Linux has come: the target is unmapped, and the tail.
                if request.has(FIXED) {
                    self.unmap_locked(lock, target)?;
                    if !tail.is_empty() && tail.end <= end / PAGE_SIZE {
                        self.unmap(tail)?;
                    }
                }
                return Err(error);
            }
        };
        let target = match request.has(FIXED) {
            true => target,
            false => match self.reserve_room(&mut lock, new, length, &attributes)? {
                Reservation::Reserved(room) => room,
                Reservation::Not(why) => return Ok(why),
            },
        };
        self.move_to(lock, &request, target, attributes, change)
    }

    fn unmap_tail(
        &self,
        lock: RangeWriteGuard<'_, M>,
        old: u64,
        length: u64,
        tail: u64,
    ) -> Result<(), Errno> {
        if tail == 0 {
            return Ok(());
        }
        let start = old.checked_add(length).ok_or(Errno::EINVAL)?;
        let end = self.check_range(start, tail)?;
        self.unmap_locked(lock, Pages::of_bytes(start..end))
    }

    /// Returns the attributes of the mapping at an address, for a writer.
    fn attributes_at(&self, address: u64) -> Option<Attributes> {
        if address >= self.layout().end {
            return None;
        }
        let page = address / PAGE_SIZE;
        let run = self.maps.run_in(page, page + 1)?;
        // SAFETY: the range keeps mappings from being retired.
        unsafe { run.word.mapping() }.map(|mapping| *mapping.attributes())
    }

    /// Returns the source's attributes, if all of it is one mapping that may get the new length within the
    /// limits after `change`.
    fn check_source(
        &self,
        lock: &RangeWriteGuard<'_, M>,
        request: &Request,
        change: VmStats,
    ) -> Result<Attributes, Errno> {
        let attributes = self.attributes_at(request.old).ok_or(Errno::EFAULT)?;
        if request.old_length == 0 && !attributes.flags.shared {
            // The same pages would be mapped a second time, which private memory does not allow.
            return Err(Errno::EINVAL);
        }
        if attributes.flags.device && request.has(DONTUNMAP) {
            return Err(Errno::EINVAL);
        }
        let page = request.old / PAGE_SIZE;
        let end = page.saturating_add((request.old_length / PAGE_SIZE).max(1));
        if !self.is_one_mapping(Pages::new(page, end), &attributes) {
            return Err(Errno::EFAULT);
        }
        if attributes.flags.device && request.length > request.old_length {
            // A device does not grow: its driver has mapped all that there is.
            return Err(Errno::EFAULT);
        }
        self.check_more(&lock.edit(), request, &attributes, change)?;
        Ok(attributes)
    }

    /// Checks whether the mapping may get its new length within the limits after `change`, under the edit that
    /// has looked. To be repeated under the edit that makes the change.
    pub(crate) fn check_more(
        &self,
        edit: &Edit<'_, M>,
        request: &Request,
        attributes: &Attributes,
        change: VmStats,
    ) -> Result<(), Errno> {
        let room = self.maps.room(edit).after(change);
        let more = (request.length - request.old_length) / PAGE_SIZE;
        if more > 0 && !room.may_lock_more(attributes, more) {
            return Err(Errno::EAGAIN);
        }
        let more = match request.has(DONTUNMAP) {
            true => request.length / PAGE_SIZE,
            false => more,
        };
        if more > 0 && !(room.has(attributes, more) && self.maps.may_commit(attributes, more)) {
            return Err(Errno::ENOMEM);
        }
        Ok(())
    }

    /// Whether all of `pages` has these attributes. Then it is one mapping to a program, even if it is several
    /// in the tree.
    fn is_one_mapping(&self, pages: Pages, attributes: &Attributes) -> bool {
        let mut at = pages.start;
        while at < pages.end {
            let run = self.maps.run_in(at, pages.end).filter(|run| {
                // SAFETY: the range keeps mappings from being retired.
                let mapping = unsafe { run.word.mapping() };
                run.pages.start <= at && mapping.is_some_and(|m| m.attributes() == attributes)
            });
            match run {
                Some(run) => at = run.pages.end,
                None => return false,
            }
        }
        true
    }

    /// Maps the additional pages behind the source, if the mapping ends there and they are free.
    fn grow_in_place(
        &self,
        lock: &RangeWriteGuard<'_, M>,
        request: &Request,
        attributes: Attributes,
    ) -> Result<Growth, Errno> {
        let start = (request.old + request.old_length) / PAGE_SIZE;
        let more = Pages::new(
            start,
            start + (request.length - request.old_length) / PAGE_SIZE,
        );
        // One edit for the check and the mapping: stacks grow without a range lock.
        let mut edit = lock.edit();
        // A guard gap above is no obstacle, as on Linux.
        if more.end > self.layout().end / PAGE_SIZE || !self.tree().is_unmapped(more) {
            return Ok(Growth::Barred);
        }
        if !self.tree().is_vacant(more) {
            return Ok(Growth::After(more));
        }
        self.check_more(&edit, request, &attributes, VmStats::default())?;
        self.map_free(&mut edit, more, attributes)?;
        Ok(Growth::Done)
    }
}
