//! `mremap`: shrinks, grows and moves a part of one mapping.
//!
//! The order of checks is Linux 6.12's, and so is what an error leaves behind: the
//! tail of a range that was to shrink, and what lay at a fixed destination, are
//! unmapped before the source is looked at.
//!
//! A move shows its destination as *changing*, so that faults there wait, and its
//! source as *zapping* (or, if it stays mapped, as changing too). Then the pages
//! go over ([`crate::carry`]), the destination becomes live, and what is left of
//! the source is zapped beside readers, as by `munmap`.

use core::ptr::NonNull;

use faultless_paging::{PAGE_SIZE, Page, Pages};
use faultless_trace::{Counter, Kind};

use super::room::{Wish, Zone};
use crate::account::Totals;
use crate::errno::Errno;
use crate::machine::Machine;
use crate::mapping::{Attributes, Flags, Locked, Mapping};
use crate::memory::Retired;
use crate::range::RangeLock;
use crate::space::AddressSpace;
use crate::tree::{Run, Word};

/// `MREMAP_*` flags.
#[allow(missing_docs)]
pub mod remap_flags {
    pub const MAYMOVE: u32 = 1;
    pub const FIXED: u32 = 2;
    pub const DONTUNMAP: u32 = 4;
}
use remap_flags::{DONTUNMAP, FIXED, MAYMOVE};

/// A move is refused unless so many mappings could be added: Linux fears to fail in the middle.
const SPARE_TO_MOVE: u64 = 4;

/// What is asked for, in bytes; lengths are whole pages.
#[derive(Clone, Copy)]
struct Request {
    old: u64,
    old_length: u64,
    /// What lies behind that and goes, if the rest moves.
    tail: u64,
    length: u64,
    flags: u32,
    /// Where to, or near it.
    new: u64,
}

impl Request {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// Both places of a move, shown as changing.
struct Shown {
    /// The source's word as it was.
    old: Word,
    /// The target's as it will be.
    word: Word,
    /// What the source becomes if it stays and was locked.
    unlocked: Option<NonNull<Mapping>>,
    /// Whether nothing was where the source goes.
    is_vacant: bool,
}

impl<M: Machine> AddressSpace<M> {
    /// Gives the `old_length` bytes at `old` the length `length`: in place, or, if
    /// `flags` allow it, elsewhere (at `new`, if that is fixed). Where they are now.
    ///
    /// # Errors
    /// As Linux's `mremap`: `EINVAL`; `EFAULT` where nothing is mapped, or more than
    /// one mapping; `ENOMEM` where there is no room or no memory, or at a limit; `EAGAIN` for
    /// what may not be locked; `EPERM` below [`crate::Layout::lowest`], and where a mapping is
    /// sealed.
    pub fn mremap(
        &self,
        old: u64,
        old_length: u64,
        length: u64,
        flags: u32,
        new: u64,
    ) -> Result<u64, Errno> {
        let start = self.trace_start();
        let result = self.remap(old, old_length, length, flags, new);
        let at = *result.as_ref().unwrap_or(&old);
        if result.is_ok() && length > old_length {
            // What is new of a locked mapping is there from the start.
            let pages = Pages::of_bytes(at..at + length.next_multiple_of(PAGE_SIZE));
            let was = old_length.div_ceil(PAGE_SIZE);
            self.populate_locked(Pages::new(pages.start + was, pages.end));
        }
        self.trace_result(Kind::Mremap, start, (at, length), result)
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
        let request = Request {
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
        let lock = self.lock_range(Pages::of_bytes(0..self.layout.end));
        match self.attributes_at(old) {
            None => return Err(Errno::EFAULT),
            Some(attributes) if attributes.flags.sealed => return Err(Errno::EPERM),
            Some(_) => {}
        }
        if has(FIXED | DONTUNMAP) {
            return self.remap_to(lock, request);
        }
        if request.length <= request.old_length {
            let tail = request.old_length - request.length;
            self.unmap_tail(lock, old, request.length, tail)?;
            return Ok(old);
        }
        let attributes = self.check_source(&lock, &request, Totals::default())?;
        if self.grow_in_place(&lock, &request, attributes)? {
            self.memory.count(Counter::Mmap);
            return Ok(old);
        }
        if !has(MAYMOVE) {
            return Err(Errno::ENOMEM);
        }
        if self.room(&lock.edit()).is_short_of(SPARE_TO_MOVE) {
            return Err(Errno::ENOMEM);
        }
        let room = self.find_still_room(&lock, 0, request.length, &attributes)?;
        self.move_to(lock, &request, room, attributes)
    }

    /// Room for so many bytes, into which no stack grows until [`crate::tree::Edit::let_grow`].
    fn find_still_room(
        &self,
        lock: &RangeLock<'_, M>,
        hint: u64,
        length: u64,
        attributes: &Attributes,
    ) -> Result<Pages, Errno> {
        let wish = Wish {
            hint,
            count: length / PAGE_SIZE,
            zone: Zone::All,
            is_private: attributes.backed.is_none(),
        };
        let mut edit = lock.edit();
        let room = self.find_room(&mut edit, &wish)?;
        edit.bar_growth();
        Ok(room)
    }

    /// A move to a fixed place, or one that leaves the old place mapped.
    fn remap_to(&self, lock: RangeLock<'_, M>, request: Request) -> Result<u64, Errno> {
        let Request {
            old,
            old_length,
            length,
            new,
            ..
        } = request;
        let end = self.layout.end;
        let overlaps = old.saturating_add(old_length) > new && new.saturating_add(length) > old;
        if !new.is_multiple_of(PAGE_SIZE) || length > end || new > end - length || overlaps {
            return Err(Errno::EINVAL);
        }
        // Linux looks before it unmaps anything.
        if self.room(&lock.edit()).is_short_of(SPARE_TO_MOVE + 2) {
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
        // What the checks come after is gone by then.
        let gone = |pages: Pages| match pages.end <= end / PAGE_SIZE {
            true => self.tally(&lock.edit(), pages, None),
            false => Totals::default(),
        };
        let change = match request.has(FIXED) {
            true => gone(target).and(&gone(tail)),
            false => gone(tail),
        };
        let checked = checked.and_then(|()| {
            // Of no length, and itself in the way.
            match request.has(FIXED) && target.contains(Page::containing(old)) {
                true => Err(Errno::EFAULT),
                false => self.check_source(&lock, &request, change),
            }
        });
        let checked = checked.and_then(|attributes| match request.has(FIXED) {
            true if new < self.layout.lowest => Err(Errno::EPERM),
            _ => Ok(attributes),
        });
        let attributes = match checked {
            Ok(attributes) => attributes,
            Err(error) => {
                // As far as Linux has come: what is in the way is gone, and the tail.
                if request.has(FIXED) {
                    self.unmap_locked(lock, target, || ())?;
                    if !tail.is_empty() && tail.end <= end / PAGE_SIZE {
                        self.unmap(tail)?;
                    }
                }
                return Err(error);
            }
        };
        let target = match request.has(FIXED) {
            true => target,
            false => self.find_still_room(&lock, new, length, &attributes)?,
        };
        self.move_to(lock, &request, target, attributes)
    }

    fn unmap_tail(
        &self,
        lock: RangeLock<'_, M>,
        old: u64,
        length: u64,
        tail: u64,
    ) -> Result<(), Errno> {
        if tail == 0 {
            return Ok(());
        }
        let start = old.checked_add(length).ok_or(Errno::EINVAL)?;
        let end = self.check_range(start, tail)?;
        self.unmap_locked(lock, Pages::of_bytes(start..end), || ())
    }

    /// What is true of the mapping at an address, for a writer.
    fn attributes_at(&self, address: u64) -> Option<Attributes> {
        if address >= self.layout.end {
            return None;
        }
        let page = address / PAGE_SIZE;
        let run = self.run_in(page, page + 1)?;
        // SAFETY: the caller has the write hold, so nothing is retired.
        unsafe { run.word.mapping() }.map(|mapping| *mapping.attributes())
    }

    /// The source's attributes, if all of it is one mapping that may get the new length.
    /// It may if that is within the limits after `change`.
    fn check_source(
        &self,
        lock: &RangeLock<'_, M>,
        request: &Request,
        change: Totals,
    ) -> Result<Attributes, Errno> {
        let attributes = self.attributes_at(request.old).ok_or(Errno::EFAULT)?;
        if request.old_length == 0 && !attributes.flags.shared {
            // A second mapping of the same pages, which private memory has not.
            return Err(Errno::EINVAL);
        }
        let page = request.old / PAGE_SIZE;
        let end = page.saturating_add((request.old_length / PAGE_SIZE).max(1));
        if !self.is_one_mapping(Pages::new(page, end), &attributes) {
            return Err(Errno::EFAULT);
        }
        let edit = lock.edit();
        let room = self.room(&edit).after(change);
        let more = (request.length - request.old_length) / PAGE_SIZE;
        if more > 0 && !room.may_lock_more(&attributes, more) {
            return Err(Errno::EAGAIN);
        }
        let more = match request.has(DONTUNMAP) {
            true => request.length / PAGE_SIZE,
            false => more,
        };
        if more > 0 && !(room.has(&attributes, more) && self.may_commit(&attributes, more)) {
            return Err(Errno::ENOMEM);
        }
        Ok(attributes)
    }

    /// Whether all of `pages` has these attributes: then it is one mapping to a program, even
    /// where neighbours that have become equal are two in the tree.
    fn is_one_mapping(&self, pages: Pages, attributes: &Attributes) -> bool {
        let mut at = pages.start;
        while at < pages.end {
            let run = self.run_in(at, pages.end).filter(|run| {
                // SAFETY: the caller has the write hold, so nothing is retired.
                let mapping = unsafe { run.word.mapping() };
                run.pages.start <= at
                    && mapping.is_some_and(|m| self.are_one(m.attributes(), attributes))
            });
            match run {
                Some(run) => at = run.pages.end,
                None => return false,
            }
        }
        true
    }

    /// Maps what is to come behind the source, if that is the mapping's end and
    /// there is room; whether it was.
    fn grow_in_place(
        &self,
        lock: &RangeLock<'_, M>,
        request: &Request,
        attributes: Attributes,
    ) -> Result<bool, Errno> {
        let start = (request.old + request.old_length) / PAGE_SIZE;
        let more = Pages::new(
            start,
            start + (request.length - request.old_length) / PAGE_SIZE,
        );
        // One edit from the look to the mapping: stacks grow without the range lock.
        let mut edit = lock.edit();
        // A guard gap above is no obstacle, as on Linux.
        if more.end > self.layout.end / PAGE_SIZE || !self.tree.is_vacant(more) {
            return Ok(false);
        }
        self.map_free(&mut edit, more, attributes)?;
        Ok(true)
    }

    fn map_again(
        &self,
        lock: &RangeLock<'_, M>,
        target: Pages,
        attributes: Attributes,
    ) -> Result<u64, Errno> {
        let mut edit = lock.edit();
        edit.let_grow();
        if self.tree.is_vacant(target) {
            self.map_free(&mut edit, target, attributes)?;
        } else {
            drop(edit);
            self.map_over(lock, target, attributes)?;
        }
        self.memory.count(Counter::Mmap);
        Ok(target.start * PAGE_SIZE)
    }

    /// What the source becomes if it stays and was locked: Linux takes the lock along. Not a
    /// neighbour's mapping, which may be one that the move replaces.
    fn unlocked(&self, word: Word, stays: bool) -> Result<Option<NonNull<Mapping>>, Errno> {
        // SAFETY: the caller has the write hold, so nothing is retired.
        let Some(mapping) = (unsafe { word.mapping() }) else {
            return Ok(None);
        };
        let attributes = *mapping.attributes();
        if !stays || attributes.flags.locked == Locked::No {
            return Ok(None);
        }
        let flags = Flags {
            locked: Locked::No,
            ..attributes.flags
        };
        let unlocked = Attributes {
            flags,
            ..attributes
        };
        Ok(Some(self.memory.allocate_mapping(self, unlocked)?))
    }

    /// Moves the source to `target`, in place of whatever is there.
    fn move_to(
        &self,
        lock: RangeLock<'_, M>,
        request: &Request,
        target: Pages,
        attributes: Attributes,
    ) -> Result<u64, Errno> {
        let old_end = request.old + request.old_length;
        let source = Pages::of_bytes(request.old..old_end);
        let attributes = attributes.moved(request.old / PAGE_SIZE, target.start);
        let stays = request.has(DONTUNMAP);
        if source.is_empty() {
            // Shared memory once more: the old mapping stays what it is.
            let mapped = self.map_again(&lock, target, attributes);
            lock.edit().let_grow();
            return mapped;
        }
        let gone = Pages::of_bytes(request.old..old_end + request.tail);
        let shown = self.show_move(&lock, (source, gone), target, attributes, stays);
        lock.edit().let_grow();
        let Shown {
            old,
            word,
            unlocked,
            is_vacant,
        } = shown?;
        lock.settle();
        if !is_vacant {
            self.zap(target, false);
        }
        self.carry(source, target.start, &attributes);

        let mut edit = lock.edit();
        edit.fill(target, word);
        if let Some(unlocked) = unlocked {
            // SAFETY: made for this, and put into the tree here.
            let word = Word::live(unsafe { unlocked.as_ref() });
            self.assign(&mut edit, source, word);
        } else if stays {
            edit.fill(source, old);
        }
        drop(edit);
        self.memory.count(Counter::Mmap);
        if !stays {
            self.memory.count(Counter::Munmap);
            let zap_lock = lock.downgrade();
            // Of the source nothing but tables is left.
            self.zap(gone, true);
            self.tree.edit(self.memory).fill(gone, Word::EMPTY);
            drop(zap_lock);
        }
        Ok(target.start * PAGE_SIZE)
    }

    /// Shows both places of a move as changing, or the source, with what goes behind it, as zapping
    /// unless it `stays`, once nothing can fail any more. No stack grows from when `target` was looked at until
    /// [`crate::tree::Edit::let_grow`].
    fn show_move(
        &self,
        lock: &RangeLock<'_, M>,
        (source, gone): (Pages, Pages),
        target: Pages,
        attributes: Attributes,
        stays: bool,
    ) -> Result<Shown, Errno> {
        lock.lock_out_readers(gone);
        lock.lock_out_readers(target);
        // No fault puts a page into the source meanwhile: a page without a table to go to
        // would be lost.
        let mut edit = lock.cut(source)?;
        edit.cut(gone)?;
        edit.cut(target)?;
        edit.bar_growth();
        let is_vacant = self.tree.is_vacant(target);
        let old = self.tree.next_until(source.start, source.end);
        let Run { pages, word: old } = old.ok_or(Errno::EFAULT)?;
        if pages.end < source.end {
            // Equal neighbours become one.
            self.assign(&mut edit, source, old);
        }
        edit.fill(source, old.changing());
        drop(edit);
        lock.settle();
        let prepared = self.prepare_tables(source, target.start);
        let prepared = prepared.and_then(|()| self.unlocked(old, stays));
        let mut edit = lock.edit();
        let words = prepared.and_then(|unlocked| {
            let word = self.word_for(&edit, target, attributes);
            if let (Err(_), Some(unlocked)) = (&word, unlocked) {
                // SAFETY: made above, and nobody else's.
                self.memory.unlink(unsafe { unlocked.as_ref() });
                self.memory.retire(Retired::Mapping(unlocked));
            }
            Ok((word?, unlocked))
        });
        let (word, unlocked) = match words {
            Ok(words) => words,
            Err(error) => {
                edit.fill(source, old);
                drop(edit);
                if is_vacant {
                    // Tables that nothing will use.
                    self.zap(target, true);
                }
                return Err(error);
            }
        };
        // SAFETY: the write hold keeps mappings from being retired.
        if let Some(mapping) = unsafe { word.mapping() } {
            // A truncation that has been at the target already comes again.
            self.memory.link_again(mapping);
        }

        // For a moment both places are mapped, and nobody is to see that afterwards.
        let peak = self.totals().peak;
        self.assign(&mut edit, target, word.changing());
        if !stays {
            self.assign(&mut edit, gone, Word::ZAPPING);
            self.account.set_peak(peak);
        }
        Ok(Shown {
            old,
            word,
            unlocked,
            is_vacant,
        })
    }
}
