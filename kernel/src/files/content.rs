//! What is in a regular file: frames of the memory core's allocator, and, until a page is written,
//! the archive's own memory.
//!
//! Frames are found through a radix tree of frames with 512 entries each, like a page table: 0 is a
//! hole. With one page the root is that page. Everything is under the file's lock; user memory is
//! never touched here, so callers copy through a buffer.
//!
//! Files may have half of memory, as Linux's tmpfs has by default; then writing fails with `ENOSPC`
//! and programs still find frames.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::arch::paging::physical_to_virtual;
use crate::errno::{EFBIG, ENOSPC, Errno};
use crate::memory::machine::{self, Purpose};

pub const PAGE: u64 = 4096;
const ENTRIES: u64 = 512;
/// The largest file: what the offset of a system call can express.
pub const LARGEST: u64 = i64::MAX as u64;

/// Frames in all files, those of the trees included.
static USED: AtomicU64 = AtomicU64::new(0);

/// How many frames all files together may have.
pub fn limit() -> u64 {
    machine::sizes().0 / PAGE / 2
}

/// How many they have.
pub fn used() -> u64 {
    USED.load(Ordering::Relaxed)
}

fn allocate() -> Result<u64, Errno> {
    if USED.fetch_add(1, Ordering::Relaxed) >= limit() {
        USED.fetch_sub(1, Ordering::Relaxed);
        return Err(ENOSPC);
    }
    machine::allocate_zeroed(Purpose::File).map_err(|_| {
        USED.fetch_sub(1, Ordering::Relaxed);
        ENOSPC
    })
}

fn free(frame: u64) {
    machine::free(frame);
    USED.fetch_sub(1, Ordering::Relaxed);
}

/// The entries of a frame of the tree.
///
/// # Safety
/// The frame is one of a tree, and the tree is borrowed as long as the result.
unsafe fn entries<'a>(frame: u64) -> &'a mut [u64; ENTRIES as usize] {
    // SAFETY: Frames are memory in the direct map; any bits are values.
    unsafe { &mut *physical_to_virtual(frame).cast() }
}

/// A file's content.
pub struct Content {
    /// What it begins with, where no frame is.
    archive: &'static [u8],
    size: u64,
    /// The tree's root, 0 for none.
    root: u64,
    /// Levels of entries above the pages.
    height: u32,
    /// Frames of pages.
    pages: u64,
}

impl Content {
    pub const fn new(archive: &'static [u8]) -> Self {
        Self {
            archive,
            size: archive.len() as u64,
            root: 0,
            height: 0,
            pages: 0,
        }
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of memory that it takes, the archive's included.
    pub fn allocated(&self) -> u64 {
        (self.pages * PAGE).max((self.archive.len() as u64).next_multiple_of(PAGE))
    }

    /// The whole content, if none of it was ever written.
    pub fn unwritten(&self) -> Option<&'static [u8]> {
        (self.root == 0 && self.size == self.archive.len() as u64).then_some(self.archive)
    }

    /// The first page number that a tree of this height cannot hold.
    fn span(height: u32) -> u64 {
        1u64.checked_shl(9 * height).unwrap_or(u64::MAX)
    }

    /// The frame of a page, if it has one.
    fn find(&self, page: u64) -> Option<u64> {
        if self.root == 0 || page >= Self::span(self.height) {
            return None;
        }
        let mut frame = self.root;
        for level in (0..self.height).rev() {
            // SAFETY: Frames above level 0 are the tree's.
            frame = unsafe { entries(frame)[(page >> (9 * level) & 511) as usize] };
            if frame == 0 {
                return None;
            }
        }
        Some(frame)
    }

    /// How many pages from one on, which has no frame, have none as far as the tree shows at once;
    /// `None`: it ends before them.
    fn missing(&self, page: u64) -> Option<u64> {
        if self.root == 0 || page >= Self::span(self.height) {
            return None;
        }
        let mut frame = self.root;
        for level in (0..self.height).rev() {
            // SAFETY: Frames above level 0 are the tree's.
            frame = unsafe { entries(frame)[(page >> (9 * level) & 511) as usize] };
            if frame == 0 {
                let span = Self::span(level);
                return Some(span - page % span);
            }
        }
        Some(1)
    }

    /// The frame of a page, which is allocated, with what the archive says, if there is none.
    fn find_or_add(&mut self, page: u64) -> Result<u64, Errno> {
        if let Some(frame) = self.find(page) {
            return Ok(frame);
        }
        while self.root != 0 && page >= Self::span(self.height) {
            let root = allocate()?;
            // SAFETY: New, so nobody else's.
            unsafe { entries(root)[0] = self.root };
            (self.root, self.height) = (root, self.height + 1);
        }
        if self.root == 0 {
            let mut height = 0;
            while page >= Self::span(height) {
                height += 1;
            }
            // On failure the height of an empty tree means nothing.
            self.height = height;
            self.root = self.add(page, height)?;
            if height == 0 {
                return Ok(self.root);
            }
        }
        let mut frame = self.root;
        for level in (0..self.height).rev() {
            let at = (page >> (9 * level) & 511) as usize;
            // SAFETY: As in `find`.
            let mut next = unsafe { entries(frame)[at] };
            if next == 0 {
                next = self.add(page, level)?;
                // SAFETY: As above.
                unsafe { entries(frame)[at] = next };
            }
            frame = next;
        }
        Ok(frame)
    }

    /// A new frame for a level; a page gets its content.
    fn add(&mut self, page: u64, level: u32) -> Result<u64, Errno> {
        let frame = allocate()?;
        if level == 0 {
            self.pages += 1;
            let from = self.archived(page * PAGE);
            let length = from.len().min(PAGE as usize);
            // SAFETY: The frame is new and as large as a page.
            unsafe {
                let to = physical_to_virtual(frame);
                to.copy_from_nonoverlapping(from.as_ptr(), length);
            };
        }
        Ok(frame)
    }

    /// What the archive has from a position on.
    fn archived(&self, position: u64) -> &'static [u8] {
        usize::try_from(position)
            .ok()
            .and_then(|position| self.archive.get(position..))
            .unwrap_or_default()
    }

    /// Reads from a position to the end or until the buffer is full; how much.
    pub fn read(&self, position: u64, to: &mut [u8]) -> usize {
        let rest = self.size.saturating_sub(position);
        let length = (to.len() as u64).min(rest) as usize;
        let mut done = 0;
        while done < length {
            let at = position + done as u64;
            let within = (at % PAGE) as usize;
            let part = (PAGE as usize - within).min(length - done);
            let to = &mut to[done..done + part];
            match self.find(at / PAGE) {
                // SAFETY: A page of this file, and the part lies in it.
                Some(frame) => unsafe {
                    let from = physical_to_virtual(frame).add(within);
                    to.as_mut_ptr().copy_from_nonoverlapping(from, part);
                },
                None => {
                    let from = self.archived(at);
                    let known = from.len().min(part);
                    to[..known].copy_from_slice(&from[..known]);
                    to[known..].fill(0);
                }
            }
            done += part;
        }
        length
    }

    /// Writes at a position; how much, which is less than all only when memory is short.
    ///
    /// # Errors
    /// `ENOSPC`, if nothing could be written; `EFBIG`.
    pub fn write(&mut self, position: u64, from: &[u8]) -> Result<usize, Errno> {
        if position
            .checked_add(from.len() as u64)
            .is_none_or(|end| end > LARGEST)
        {
            return Err(EFBIG);
        }
        let mut done = 0;
        while done < from.len() {
            let at = position + done as u64;
            let within = (at % PAGE) as usize;
            let part = (PAGE as usize - within).min(from.len() - done);
            let frame = match self.find_or_add(at / PAGE) {
                Ok(frame) => frame,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            };
            // SAFETY: A page of this file, and the part lies in it.
            unsafe {
                let to = physical_to_virtual(frame).add(within);
                to.copy_from_nonoverlapping(from[done..].as_ptr(), part);
            };
            done += part;
            self.size = self.size.max(position + done as u64);
        }
        Ok(done)
    }

    /// Makes the page of a position and its frame exist; where the page ends.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn reserve(&mut self, position: u64) -> Result<u64, Errno> {
        let page = position / PAGE;
        if self.archived(page * PAGE).is_empty() {
            self.find_or_add(page)?;
        }
        Ok((page + 1) * PAGE)
    }

    /// Makes it longer, with a hole, or shorter.
    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            let keep = size.div_ceil(PAGE);
            self.archive = &self.archive[..self.archive.len().min(size as usize)];
            // What follows the end in the last page must read as zero if the file grows again.
            if let Some(frame) = self.find(size / PAGE) {
                let within = (size % PAGE) as usize;
                // SAFETY: A page of this file.
                unsafe {
                    let rest = physical_to_virtual(frame).add(within);
                    rest.write_bytes(0, PAGE as usize - within);
                };
            }
            if self.root != 0 && cut(self.root, self.height, 0, keep, &mut self.pages) {
                self.root = 0;
                self.height = 0;
            }
        }
        self.size = size;
    }

    /// The first of its frames, if it has any.
    pub fn root(&self) -> Option<u64> {
        (self.root != 0).then_some(self.root)
    }

    /// Calls `visit` with every frame that it has, those of the tree included.
    ///
    /// # Errors
    /// Those of `visit`.
    pub fn for_each_frame<E>(&self, visit: &mut dyn FnMut(u64) -> Result<(), E>) -> Result<(), E> {
        if self.root == 0 {
            return Ok(());
        }
        walk(self.root, self.height, visit)
    }

    /// The first position from one on that has data, or, if `data` is not, has none. The end of the
    /// file counts as a hole; `None`: there is no such position before it.
    pub fn seek(&self, position: u64, data: bool) -> Option<u64> {
        let mut at = position;
        while at < self.size {
            let has = self.find(at / PAGE).is_some() || !self.archived(at & !(PAGE - 1)).is_empty();
            if has == data {
                return Some(at);
            }
            let page = at / PAGE;
            let pages = if has { Some(1) } else { self.missing(page) };
            // Nothing is beyond the tree and the archive.
            let Some(next) = pages.and_then(|pages| page.checked_add(pages)) else {
                return (!data).then_some(self.size);
            };
            at = next.saturating_mul(PAGE);
        }
        (!data).then_some(self.size)
    }
}

/// Calls `visit` with every frame below one, itself included.
fn walk<E>(frame: u64, level: u32, visit: &mut dyn FnMut(u64) -> Result<(), E>) -> Result<(), E> {
    visit(frame)?;
    if level == 0 {
        return Ok(());
    }
    // SAFETY: Above level 0, so a frame of the tree, which the caller borrows.
    let below = unsafe { &*physical_to_virtual(frame).cast::<[u64; ENTRIES as usize]>() };
    let mut below = below.iter().filter(|&&entry| entry != 0);
    below.try_for_each(|&entry| walk(entry, level - 1, visit))
}

/// Frees all pages from number `keep` on below a frame that begins at page `first`; whether the
/// frame itself is gone.
fn cut(frame: u64, level: u32, first: u64, keep: u64, pages: &mut u64) -> bool {
    if level == 0 {
        if first < keep {
            return false;
        }
        *pages -= 1;
        free(frame);
        return true;
    }
    let step = Content::span(level - 1);
    let mut empty = true;
    for at in 0..ENTRIES {
        let begin = first.saturating_add(at.saturating_mul(step));
        // SAFETY: Above level 0, so a frame of the tree, which the caller borrows.
        let entry = unsafe { &mut entries(frame)[at as usize] };
        if *entry == 0 {
            continue;
        }
        let end = begin.saturating_add(step);
        if end > keep && cut(*entry, level - 1, begin, keep, pages) {
            *entry = 0;
        } else {
            empty = false;
        }
    }
    if empty {
        free(frame);
    }
    empty
}

impl Drop for Content {
    fn drop(&mut self) {
        if self.root != 0 {
            cut(self.root, self.height, 0, 0, &mut self.pages);
        }
    }
}
