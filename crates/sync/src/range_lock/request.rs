//! Requests for ranges of a [`super::RangeLock`].

use core::ops::Range;

/// The ranges that an operation asks for or holds, and the kind of access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRequest {
    pub(super) ranges: [Range<u64>; 2],
    /// Where no zap may be running.
    pub(super) new: Range<u64>,
    pub(super) is_shared: bool,
    pub(super) is_beside_replacing: bool,
}

impl LockRequest {
    /// Returns a request to change what is in a range: exclusive, except that zaps may be running there.
    pub const fn to_change(range: Range<u64>) -> Self {
        Self {
            ranges: [range, 0..0],
            new: 0..0,
            is_shared: false,
            is_beside_replacing: false,
        }
    }

    /// Returns a request to put something new into a range: exclusive, and no zap is running there.
    pub fn to_fill(range: Range<u64>) -> Self {
        Self::to_change(range.clone()).filling(range)
    }

    /// Returns a request to keep what is in a range as it is: shared.
    pub fn to_keep(range: Range<u64>) -> Self {
        Self {
            is_shared: true,
            ..Self::to_change(range)
        }
    }

    /// Adds a second range, with the same access.
    #[must_use]
    pub fn and(mut self, range: Range<u64>) -> Self {
        self.ranges[1] = range;
        self
    }

    /// Requires that no zap is running in `range`, a part of the request.
    #[must_use]
    pub fn filling(mut self, range: Range<u64>) -> Self {
        self.new = range;
        self
    }

    /// Permits replacements in the ranges.
    #[must_use]
    pub const fn beside_replacing(mut self) -> Self {
        self.is_beside_replacing = true;
        self
    }

    /// Returns the first range.
    pub fn range(&self) -> Range<u64> {
        self.ranges[0].clone()
    }

    /// Whether a range overlaps one of the request.
    pub fn meets(&self, range: &Range<u64>) -> bool {
        self.ranges.iter().any(|own| meet(own, range))
    }

    /// Whether the two requests conflict.
    pub(super) fn excludes(&self, other: &Self) -> bool {
        !(self.is_shared && other.is_shared) && other.ranges.iter().any(|range| self.meets(range))
    }
}

/// Whether two ranges overlap. An empty range overlaps none.
pub(super) fn meet(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start.max(other.start) < one.end.min(other.end)
}
