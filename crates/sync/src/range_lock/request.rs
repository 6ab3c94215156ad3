//! What somebody asks a [`super::RangeLock`] for.

use core::ops::Range;

/// What somebody wants, or has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRequest {
    pub(super) ranges: [Range<u64>; 2],
    /// Where nothing may be zapped.
    pub(super) new: Range<u64>,
    pub(super) is_shared: bool,
    pub(super) is_beside_replacing: bool,
}

impl LockRequest {
    /// To change what is in a range: alone, but for who zaps there.
    pub const fn to_change(range: Range<u64>) -> Self {
        Self {
            ranges: [range, 0..0],
            new: 0..0,
            is_shared: false,
            is_beside_replacing: false,
        }
    }

    /// To put something new into a range: alone, and where nothing is being zapped.
    pub fn to_fill(range: Range<u64>) -> Self {
        Self::to_change(range.clone()).filling(range)
    }

    /// That nobody changes what is in a range.
    pub fn to_keep(range: Range<u64>) -> Self {
        Self {
            is_shared: true,
            ..Self::to_change(range)
        }
    }

    /// A second range in the same way.
    #[must_use]
    pub fn and(mut self, range: Range<u64>) -> Self {
        self.ranges[1] = range;
        self
    }

    /// The same where nothing is being zapped in this part of it.
    #[must_use]
    pub fn filling(mut self, range: Range<u64>) -> Self {
        self.new = range;
        self
    }

    /// The same, also where something takes the place of something else.
    #[must_use]
    pub const fn beside_replacing(mut self) -> Self {
        self.is_beside_replacing = true;
        self
    }

    /// The first range.
    pub fn range(&self) -> Range<u64> {
        self.ranges[0].clone()
    }

    /// Whether a range has something of it.
    pub fn meets(&self, range: &Range<u64>) -> bool {
        self.ranges.iter().any(|own| meet(own, range))
    }

    /// Whether the two cannot be had at once.
    pub(super) fn excludes(&self, other: &Self) -> bool {
        !(self.is_shared && other.is_shared) && other.ranges.iter().any(|range| self.meets(range))
    }
}

/// Whether two ranges have something in common; an empty one has not.
pub(super) fn meet(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start.max(other.start) < one.end.min(other.end)
}
