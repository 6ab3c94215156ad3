//! Frame numbers of physical memory and page numbers of virtual memory, as distinct types.

use core::ops::Range;

/// Size of a page and of a frame, in bytes.
pub const PAGE_SIZE: u64 = 4096;

/// A frame of physical memory, by number: its physical address divided by [`PAGE_SIZE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame(pub u64);

/// A page of virtual memory, by number: its address divided by [`PAGE_SIZE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page(pub u64);

/// A range of pages, `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// The first page.
    pub start: u64,
    /// The page after the last.
    pub end: u64,
}

impl Page {
    /// Returns the page that holds an address.
    #[inline]
    pub fn containing(address: u64) -> Self {
        Self(address / PAGE_SIZE)
    }

    /// Returns the first address of the page.
    #[inline]
    pub fn address(self) -> u64 {
        self.0 * PAGE_SIZE
    }
}

impl Pages {
    /// Returns the pages `start..end`, by number.
    pub fn new(start: u64, end: u64) -> Self {
        Self { start, end }
    }

    /// Returns the pages of a page-aligned byte range.
    pub fn of_bytes(bytes: Range<u64>) -> Self {
        Self {
            start: bytes.start / PAGE_SIZE,
            end: bytes.end / PAGE_SIZE,
        }
    }

    /// Returns the number of pages.
    pub fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether the range is empty.
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// Whether a page is in the range.
    pub fn contains(self, page: Page) -> bool {
        self.start <= page.0 && page.0 < self.end
    }

    /// Returns the pages that are in both ranges.
    pub fn and(self, other: Pages) -> Pages {
        Pages {
            start: self.start.max(other.start),
            end: self.end.min(other.end),
        }
    }
}
