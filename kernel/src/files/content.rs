//! The content of a regular file: a memory object, the pages of which programs may map. Behind it is the
//! archive's own memory, for pages that were not yet written or mapped (`source`).
//!
//! User memory is copied directly from and to a page. The page is pinned meanwhile, and no lock that a fault
//! takes is held. The user memory may be a mapping of this very file. Calls that write or change the size
//! hold the file's `turn`.

use core::ptr;

use faultless_mm::Pinned;

use super::source::{self, Files, Kind, Source, seal};
use crate::arch::paging::physical_to_virtual;
use crate::arch::uaccess;
use crate::errno::{Answer, EFBIG, EINVAL, ENOMEM, ENOSPC, Errno};
use crate::memory::MemoryObject;
use crate::memory::machine::{Kernel, memory};
use crate::memory::reclaim::or_reclaim;
use crate::sched;
use crate::sched::thread::Work;
use crate::shared::Shared;

pub const PAGE: u64 = 4096;
/// Bytes of a page of the pool of huge pages.
const HUGE: u64 = 2 << 20;
/// The largest file size: the limit of a system call's offset.
pub const LARGEST: u64 = i64::MAX as u64;
/// Bytes between two calls of `sched::breathe`.
const BREATH: u64 = 16 << 10;

/// How often reclamation is expedited, for memory that only waits for readers. Twice lets their epochs pass.
const EXPEDITIONS: u32 = 3;

static FILES: Files = Files;
static ZEROES: [u8; PAGE as usize] = [0; PAGE as usize];

/// A file's content.
pub struct Content {
    pub store: MemoryObject,
    pub source: Shared<Source>,
}

/// Returns how many bytes lie in one page, both from a position and from a user address on.
fn part(position: u64, user: u64, length: u64) -> u64 {
    let rest = |at: u64| PAGE - at % PAGE;
    rest(position).min(rest(user)).min(length)
}

/// Calls `sched::breathe`. Returns whether to go on: as on Linux, only the thread's exit stops a file
/// transfer.
fn goes_on() -> bool {
    sched::breathe();
    !sched::current().work().contains(Work::EXIT)
}

impl Content {
    /// Makes content that begins with the archive's bytes. `number` is the inode's.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(number: u64, kind: Kind, archive: &'static [u8]) -> Result<Self, Errno> {
        let source = Shared::new(Source::new(number, kind, archive))?;
        let tag = source::tag(&source);
        let size = archive.len() as u64;
        match MemoryObject::new(memory(), size, Some(&FILES), tag) {
            Ok(store) => Ok(Self { store, source }),
            Err(_) => {
                faultless_mm::Pager::gone(&FILES, tag);
                Err(ENOMEM)
            }
        }
    }

    pub fn size(&self) -> u64 {
        self.store.size()
    }

    /// Bytes of memory in use, including the archive's.
    pub fn allocated(&self) -> u64 {
        let archive = self.source.bound().next_multiple_of(PAGE);
        (self.source.pages() * PAGE).max(archive)
    }

    /// Reads from a position to the end into user memory; less if the thread has to exit.
    ///
    /// # Errors
    /// `EFAULT`, if nothing could be copied.
    pub fn read(&self, position: u64, to: u64, length: u64) -> Answer {
        let mut done = 0;
        let mut breath = BREATH;
        while done < length {
            let (at, user) = (position + done, to.wrapping_add(done));
            let rest = self.size().saturating_sub(at).min(length - done);
            let part = part(at, user, rest);
            if part == 0 {
                break;
            }
            match self.give(at, part as usize, user) {
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
                Ok(()) => done += part,
            }
            if done >= breath {
                breath = done + BREATH;
                if !goes_on() {
                    break;
                }
            }
        }
        Ok(done)
    }

    /// Returns a page that the file has in memory or in swap.
    fn present(&self, page: u64) -> Result<Option<Pinned<'_, Kernel>>, Errno> {
        or_reclaim(|| self.store.present(page))
    }

    /// Copies a part of a page to user memory.
    fn give(&self, at: u64, part: usize, to: u64) -> Result<(), Errno> {
        if let Some(page) = self.present(at / PAGE)? {
            let from = physical_to_virtual(page.frame().0 << 12);
            // SAFETY: The page is pinned, and the part lies in it.
            return unsafe { uaccess::write_from(to, from.add((at % PAGE) as usize), part) };
        }
        let archived = self.source.archived(at);
        let known = archived.len().min(part);
        uaccess::write_bytes(to, &archived[..known])?;
        uaccess::write_bytes(to + known as u64, &ZEROES[..part - known])
    }

    /// Reads from a position to the end, or until the buffer is full. Returns how much.
    pub fn read_to(&self, position: u64, to: &mut [u8]) -> usize {
        let rest = self.size().saturating_sub(position);
        let length = rest.min(to.len() as u64) as usize;
        let mut done = 0;
        while done < length {
            let at = position + done as u64;
            let within = (at % PAGE) as usize;
            let part = (PAGE as usize - within).min(length - done);
            let to = &mut to[done..done + part];
            let Ok(page) = self.present(at / PAGE) else {
                // The page has as many pins as it may have, and they may stay for ever; or it cannot come back.
                return done;
            };
            if let Some(page) = page {
                let from = physical_to_virtual(page.frame().0 << 12);
                // SAFETY: The page is pinned, and the part lies in it. Programs that map it may
                // write it meanwhile; any bytes will do.
                unsafe { ptr::copy_nonoverlapping(from.add(within), to.as_mut_ptr(), part) };
            } else {
                let archived = self.source.archived(at);
                let known = archived.len().min(part);
                to[..known].copy_from_slice(&archived[..known]);
                to[known..].fill(0);
            }
            done += part;
        }
        length
    }

    /// Writes from user memory at a position; less than all if memory is short or the thread has to exit. The
    /// caller holds the `turn`.
    ///
    /// # Errors
    /// If nothing could be written: `EFAULT`, `ENOSPC`, `EFBIG`, `EPERM` for a sealed file.
    pub fn write(&self, position: u64, from: u64, length: u64) -> Answer {
        if self.store.is_pooled() {
            // As Linux's hugetlbfs.
            return Err(EINVAL);
        }
        let room = LARGEST.saturating_sub(position);
        if length != 0 && room == 0 {
            return Err(EFBIG);
        }
        let length = length.min(room);
        let mut done = 0;
        let mut breath = BREATH;
        while done < length {
            let (at, user) = (position + done, from.wrapping_add(done));
            let part = part(at, user, length - done);
            match self.take(at, part, user) {
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
                Ok(()) => done += part,
            }
            if done >= breath {
                breath = done + BREATH;
                if !goes_on() {
                    break;
                }
            }
        }
        Ok(done)
    }

    /// Copies a part of a page from user memory.
    fn take(&self, at: u64, part: u64, from: u64) -> Result<(), Errno> {
        let size = self.size();
        self.source.check(seal::NO_WRITES)?;
        if at + part > size {
            self.source.check(seal::GROW)?;
        }
        // Allocate no page for data that cannot be read.
        uaccess::read::<u8>(from)?;
        let page = to_write(&self.store, at / PAGE)?;
        let to = physical_to_virtual(page.frame().0 << 12);
        // SAFETY: The page is pinned, and the part lies in it.
        let place = unsafe { to.add((at % PAGE) as usize) };
        // SAFETY: As above.
        let copied = unsafe { uaccess::read_to(from, place, part as usize) };
        match copied {
            Ok(()) if at / PAGE * PAGE < size => self.store.extend(at + part),
            Ok(()) => {
                if !self.store.extend_with(at + part, at / PAGE, &page) {
                    // A fault that came too late for the last truncation has removed the page again: write
                    // the data once more.
                    return self.take(at, part, from);
                }
            }
            Err(_) => {
                // The user memory was unmapped meanwhile. Bytes behind the end stay zero.
                let kept = size.saturating_sub(at).min(part);
                // SAFETY: As above.
                unsafe {
                    place
                        .add(kept as usize)
                        .write_bytes(0, (part - kept) as usize)
                };
                drop(page);
                if at / PAGE * PAGE >= size {
                    // Leave no page that lies behind the end as a whole.
                    or_reclaim(|| self.store.truncate(size))?;
                }
            }
        }
        copied
    }

    /// Allocates the pages of a range. The caller holds the `turn`.
    ///
    /// # Errors
    /// `ENOSPC`, `EPERM`; `EINTR` if a signal came. The size is then unchanged.
    pub fn reserve(&self, start: u64, end: u64, keeps_size: bool) -> Result<(), Errno> {
        let size = self.size();
        if end > size {
            self.source.check(seal::GROW)?;
        }
        if end.div_ceil(PAGE) - start / PAGE > self.source.most() {
            return Err(ENOSPC);
        }
        // Allocate no pages behind the size.
        let last = if keeps_size { end.min(size) } else { end };
        for page in start / PAGE..last.div_ceil(PAGE) {
            let made = to_write(&self.store, page).map(drop);
            let made = made.and_then(|()| match sched::breathe() {
                true => Ok(()),
                false => Err(crate::errno::EINTR),
            });
            if let Err(error) = made {
                // Free the pages made behind the size.
                or_reclaim(|| self.store.truncate(size))?;
                return Err(error);
            }
        }
        if !keeps_size {
            self.store.extend(end);
        }
        Ok(())
    }

    /// Makes it longer, with a hole, or shorter. The caller holds the `turn`.
    ///
    /// # Errors
    /// `EPERM` for a sealed file; `ENOMEM`.
    pub fn resize(&self, size: u64) -> Result<(), Errno> {
        let before = self.size();
        let forbidden = match size.cmp(&before) {
            core::cmp::Ordering::Less => seal::SHRINK,
            core::cmp::Ordering::Equal => 0,
            core::cmp::Ordering::Greater => seal::GROW,
        };
        self.source.check(forbidden)?;
        if self.store.is_pooled() && !size.is_multiple_of(HUGE) {
            return Err(EINVAL);
        }
        if size < before {
            self.source.forget(size);
        }
        or_reclaim(|| self.store.truncate(size))
    }

    /// Punches a hole.
    ///
    /// # Errors
    /// `EPERM` for a sealed file; `ENOMEM`; `EINTR` if the thread has to exit.
    pub fn punch(&self, start: u64, end: u64) -> Result<(), Errno> {
        let _turn = self.source.turn.take()?;
        punch(&self.store, &self.source, start, end)
    }

    /// The first position from `position` on that has data or, if `data` is false, has none. The end of the
    /// file counts as a hole. `None`: there is no such position before it.
    pub fn seek(&self, position: u64, data: bool) -> Option<u64> {
        let size = self.size();
        let bound = self.source.bound().next_multiple_of(PAGE);
        let page = position / PAGE;
        if data {
            if position < bound.min(size) {
                return Some(position);
            }
            let at = self.store.next(page)?.saturating_mul(PAGE).max(position);
            return (at < size).then_some(at);
        }
        let mut page = page.max(bound / PAGE);
        while page < size.div_ceil(PAGE) && self.store.next(page) == Some(page) {
            page += 1;
        }
        Some(page.saturating_mul(PAGE).max(position).min(size))
    }
}

/// Punches a hole in an object. The caller holds the source's `turn`.
///
/// # Errors
/// `EPERM` for a sealed file; `ENOMEM`.
pub fn punch(store: &MemoryObject, source: &Source, start: u64, end: u64) -> Result<(), Errno> {
    source.check(seal::NO_WRITES)?;
    let bound = source.bound();
    let mut start = start;
    if end < bound {
        // In the middle of the archive's bytes: overwrite them with zeroes.
        while start < end {
            let part = part(start, 0, end - start);
            let page = to_write(store, start / PAGE)?;
            let to = physical_to_virtual(page.frame().0 << 12);
            // SAFETY: The page is pinned, and the part lies in it.
            unsafe {
                to.add((start % PAGE) as usize)
                    .write_bytes(0, part as usize)
            };
            start += part;
        }
        return Ok(());
    }
    if start < bound {
        source.forget(start);
    }
    or_reclaim(|| store.punch(start..end))
}

/// Returns a page for writing, allocated if needed. Memory that was just unmapped may still wait for readers,
/// so reclamation is expedited before this fails.
///
/// # Errors
/// `ENOSPC`.
fn to_write(store: &MemoryObject, page: u64) -> Result<Pinned<'_, Kernel>, Errno> {
    for _ in 0..EXPEDITIONS {
        match or_reclaim(|| store.page_to_write(page)) {
            Err(ENOMEM | ENOSPC) => memory().expedite(),
            other => return other,
        }
    }
    store.page_to_write(page).map_err(|_| ENOSPC)
}
