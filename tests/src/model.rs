//! A simple model of the mappings: a sorted list of runs of pages.
//!
//! Every operation goes over the whole list. Addresses are page numbers.

use faultless_mm::{Errno, MapsEntry, PAGE_SIZE};

/// Pages that stay free below a mapping that grows down.
pub const GUARD_GAP: u64 = 256;
/// Pages of a huge page: mappings of whole ones are aligned.
pub const HUGE: u64 = 512;

/// The attributes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// `PROT_*`.
    pub prot: u32,
    /// `MAP_GROWSDOWN`.
    pub grows_down: bool,
    /// `MAP_NORESERVE`.
    pub no_reserve: bool,
}

/// Pages of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The first page.
    pub start: u64,
    /// The page after the last.
    pub end: u64,
    /// Their attributes.
    pub kind: Kind,
}

/// The mappings and the limits of the address space. Neighbours differ in kind.
#[derive(Clone, Debug)]
pub struct Model {
    pieces: Vec<Piece>,
    /// The first page that may be mapped.
    pub low: u64,
    /// Pages are chosen below this one if possible.
    pub base: u64,
    /// The page after the last that may be mapped.
    pub end: u64,
}

impl Model {
    /// A model in which nothing is mapped.
    pub fn new(low: u64, base: u64, end: u64) -> Self {
        Self {
            pieces: Vec::new(),
            low,
            base,
            end,
        }
    }

    /// The runs, in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The attributes of a page.
    pub fn at(&self, page: u64) -> Option<Kind> {
        let piece = self
            .pieces
            .iter()
            .find(|p| p.start <= page && page < p.end)?;
        Some(piece.kind)
    }

    /// The first run that begins at `page` or behind.
    pub fn above(&self, page: u64) -> Option<Piece> {
        self.pieces.iter().copied().find(|p| p.start >= page)
    }

    /// Makes `start..end` one run, or unmaps it.
    pub fn assign(&mut self, start: u64, end: u64, kind: Option<Kind>) {
        let old = std::mem::take(&mut self.pieces);
        let before = old.iter().map(|p| (p.start, p.end.min(start), p.kind));
        let after = old.iter().map(|p| (p.start.max(end), p.end, p.kind));
        let new = kind.map(|kind| (start, end, kind));
        for (start, end, kind) in before.chain(new).chain(after) {
            if start >= end {
                continue;
            }
            match self.pieces.last_mut() {
                Some(last) if last.end == start && last.kind == kind => last.end = end,
                _ => self.pieces.push(Piece { start, end, kind }),
            }
        }
    }

    /// Whether nothing of `start..end` is mapped.
    pub fn is_vacant(&self, start: u64, end: u64) -> bool {
        self.pieces.iter().all(|p| p.end <= start || end <= p.start)
    }

    /// The start of the guard gap below the run above `page`, if that run has one.
    fn guard(&self, page: u64) -> Option<u64> {
        let above = self.above(page).filter(|p| p.kind.grows_down)?;
        Some(above.start.saturating_sub(GUARD_GAP)).filter(|&gap| gap < page)
    }

    /// The first page of the highest hole of `count` pages between `low` and
    /// `high`. A guard gap counts only for a hole that is large enough; the
    /// search then goes on below the gap.
    pub fn hole(&self, count: u64, low: u64, high: u64) -> Option<u64> {
        let (mut found, mut at) = (None, low);
        for piece in &self.pieces {
            let (start, end) = (at, piece.start.min(high));
            if end >= start + count {
                found = Some(end);
            }
            at = at.max(piece.end);
        }
        if high >= at + count {
            found = Some(high);
        }
        let end = found?;
        match self.guard(end) {
            None => Some(end - count),
            Some(below) => self.hole(count, low, below),
        }
    }

    /// The first page of the lowest hole of `count` pages from `low` on. A hole that is too small only
    /// because of a guard gap does not count.
    pub fn lowest_hole(&self, count: u64, low: u64) -> Option<u64> {
        let ends = self.pieces.iter().map(|p| p.end.max(low));
        let free = |&at: &u64| self.is_vacant(at, at + count) && self.guard(at + count).is_none();
        let at = std::iter::once(low).chain(ends).find(free)?;
        (at + count <= self.end).then_some(at)
    }

    /// A hole of `count` pages: the highest below the base, or else the lowest above a third of the space.
    fn any_hole(&self, count: u64) -> Option<u64> {
        self.hole(count, self.low, self.base)
            .or_else(|| self.lowest_hole(count, self.end.div_ceil(3).max(self.low)))
    }

    /// The place of `count` pages without a fixed address.
    pub fn choose(&self, hint: u64, count: u64) -> Option<u64> {
        if hint != 0 {
            let (start, end) = (hint.max(self.low), hint.max(self.low) + count);
            if end <= self.end && self.is_vacant(start, end) && self.guard(end).is_none() {
                return Some(start);
            }
        } else if count.is_multiple_of(HUGE)
            && let Some(start) = self.any_hole(count + HUGE)
        {
            // The next boundary that is strictly above.
            return Some((start / HUGE + 1) * HUGE);
        }
        self.any_hole(count)
    }

    /// `MAP_FIXED`, or `MAP_FIXED_NOREPLACE`.
    ///
    /// # Errors
    /// As `mmap`'s.
    pub fn map_at(&mut self, at: u64, count: u64, kind: Kind, replace: bool) -> Result<u64, Errno> {
        if at + count > self.end {
            return Err(Errno::ENOMEM);
        }
        if at < self.low {
            return Err(Errno::EPERM);
        }
        if !replace && !self.is_vacant(at, at + count) {
            return Err(Errno::EEXIST);
        }
        self.assign(at, at + count, Some(kind));
        Ok(at)
    }

    /// `mmap` at the hint, or anywhere.
    ///
    /// # Errors
    /// As `mmap`'s.
    pub fn map_near(&mut self, hint: u64, count: u64, kind: Kind) -> Result<u64, Errno> {
        let at = self.choose(hint, count).ok_or(Errno::ENOMEM)?;
        self.assign(at, at + count, Some(kind));
        Ok(at)
    }

    /// `munmap`.
    ///
    /// # Errors
    /// `EINVAL` beyond the end.
    pub fn unmap(&mut self, at: u64, count: u64) -> Result<(), Errno> {
        if at + count > self.end {
            return Err(Errno::EINVAL);
        }
        self.assign(at, at + count, None);
        Ok(())
    }

    /// `mprotect`: up to the first hole.
    ///
    /// # Errors
    /// `ENOMEM` at a hole; what is below it has changed.
    pub fn protect(&mut self, at: u64, count: u64, prot: u32) -> Result<(), Errno> {
        let (mut at, end) = (at, at + count);
        while at < end {
            let piece = self.pieces.iter().find(|p| p.start <= at && at < p.end);
            let piece = *piece.ok_or(Errno::ENOMEM)?;
            let until = piece.end.min(end);
            self.assign(at, until, Some(Kind { prot, ..piece.kind }));
            at = until;
        }
        Ok(())
    }

    /// The lines of `maps`.
    pub fn maps(&self) -> Vec<(u64, u64, u32, bool)> {
        let line = |p: &Piece| (p.start, p.end, p.kind.prot, p.kind.grows_down);
        self.pieces.iter().map(line).collect()
    }
}

/// A line of `maps` as the model shows it.
pub fn line(entry: &MapsEntry) -> (u64, u64, u32, bool) {
    let p = entry.protection;
    let prot = u32::from(p.read) | u32::from(p.write) << 1 | u32::from(p.execute) << 2;
    (
        entry.start / PAGE_SIZE,
        entry.end / PAGE_SIZE,
        prot,
        entry.grows_down,
    )
}
