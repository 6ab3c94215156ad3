//! Numbers that must not be mixed up: frames of physical memory, pages of virtual memory.

use core::ops::Range;

/// Bytes of a page and of a frame.
pub const PAGE_SIZE: u64 = 4096;

/// A frame of physical memory, by number: its physical address divided by [`PAGE_SIZE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame(pub u64);

/// A page of virtual memory, by number: its address divided by [`PAGE_SIZE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page(pub u64);

/// Pages `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// The first page.
    pub start: u64,
    /// The page after the last.
    pub end: u64,
}

impl Page {
    /// The page that holds an address.
    #[inline]
    pub fn containing(address: u64) -> Self {
        Self(address / PAGE_SIZE)
    }

    /// Its first address.
    #[inline]
    pub fn address(self) -> u64 {
        self.0 * PAGE_SIZE
    }
}

impl Pages {
    /// Pages `start..end` by number.
    pub fn new(start: u64, end: u64) -> Self {
        Self { start, end }
    }

    /// The pages of a byte range that is page-aligned.
    pub fn of_bytes(bytes: Range<u64>) -> Self {
        Self {
            start: bytes.start / PAGE_SIZE,
            end: bytes.end / PAGE_SIZE,
        }
    }

    /// How many.
    pub fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// Whether a page is among them.
    pub fn contains(self, page: Page) -> bool {
        self.start <= page.0 && page.0 < self.end
    }

    /// The pages in both.
    pub fn and(self, other: Pages) -> Pages {
        Pages {
            start: self.start.max(other.start),
            end: self.end.min(other.end),
        }
    }
}
