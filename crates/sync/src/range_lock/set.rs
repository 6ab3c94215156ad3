//! A set of slots of a range list.

use super::places::PLACES;

const WORDS: usize = PLACES.div_ceil(64);

/// A bit for each slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set([u64; WORDS]);

impl Set {
    /// The empty set.
    pub(super) const EMPTY: Set = Set([0; WORDS]);

    /// Returns the set of one slot.
    pub fn of(place: usize) -> Self {
        let mut set = Self::EMPTY;
        set.insert(place);
        set
    }

    /// Whether a slot is in the set.
    #[inline]
    pub fn has(&self, place: usize) -> bool {
        self.0[place / 64] & 1 << (place % 64) != 0
    }

    /// Adds a slot.
    #[inline]
    pub fn insert(&mut self, place: usize) {
        self.0[place / 64] |= 1 << (place % 64);
    }

    /// Removes a slot. Mostly it is not in the set, and then nothing is written.
    #[inline]
    pub(super) fn remove(&mut self, place: usize) {
        if self.has(place) {
            self.0[place / 64] &= !(1 << (place % 64));
        }
    }

    /// Whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Returns the first slot that is not in the set.
    #[inline]
    pub(super) fn first_missing(&self) -> usize {
        let words = self.0.iter().enumerate();
        let mut missing = words.filter(|(_, word)| **word != u64::MAX);
        missing.next().map_or(PLACES, |(number, word)| {
            number * 64 + (!word).trailing_zeros() as usize
        })
    }

    /// Returns the union.
    #[inline]
    pub(super) fn or(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a |= b);
        self
    }

    /// Returns the slots that are not in `other`.
    #[inline]
    pub(super) fn without(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a &= !b);
        self
    }

    /// Returns the intersection.
    #[inline]
    pub(super) fn and(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a &= b);
        self
    }

    /// Returns the slots in ascending order.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = usize> {
        self.0
            .into_iter()
            .enumerate()
            .flat_map(|(number, mut word)| {
                core::iter::from_fn(move || {
                    let first = (word != 0).then(|| word.trailing_zeros() as usize)?;
                    word &= word - 1;
                    Some(number * 64 + first)
                })
            })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn places_come_and_go() {
        let mut set = Set::default();
        assert!(set.is_empty() && set.first_missing() == 0);
        (0..PLACES).for_each(|place| set.insert(place));
        assert!(set.iter().eq(0..PLACES) && set.first_missing() >= PLACES);
        for place in [0, 63, 64, PLACES - 1] {
            set.remove(place);
            assert!(!set.has(place) && set.first_missing() == place);
            set.insert(place);
        }
        let (one, other) = (Set::of(70), Set::of(3));
        assert!(one.or(&other).iter().eq([3, 70]));
        assert!(set.without(&one).or(&one) == set && set.and(&one) == one);
    }
}
