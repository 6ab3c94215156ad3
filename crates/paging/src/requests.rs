//! Pending TLB flush requests of one CPU: the ranges in a machine's mailbox.
//!
//! Ranges that overlap or adjoin are merged. So overlapping gathers never add up to a full flush, however
//! many arrive before the CPU looks. A range has at least one page. If there is a slot for each page that a
//! machine flushes singly, the slots overflow only when more pages than that were requested.
//!
//! No atomics: the machine uses a lock around it.

use core::ops::Range;

use crate::address::PAGE_SIZE;

/// Up to `N` byte ranges, each of an address space that `K` names.
#[derive(Clone, Copy, Debug)]
pub struct Requests<K, const N: usize> {
    places: [(K, u64, u64); N],
    used: usize,
    overflow: bool,
}

impl<K: Copy + PartialEq, const N: usize> Requests<K, N> {
    /// Returns an empty set of requests. `key` only fills unused slots.
    pub const fn new(key: K) -> Self {
        Self {
            places: [(key, 0, 0); N],
            used: 0,
            overflow: false,
        }
    }

    /// Adds a range, which is not empty.
    pub fn add(&mut self, key: K, range: Range<u64>) {
        let (mut start, mut end) = (range.start, range.end);
        let mut at = 0;
        while at < self.used {
            let (other, from, to) = self.places[at];
            if other == key && from <= end && start <= to {
                (start, end) = (start.min(from), end.max(to));
                self.used -= 1;
                self.places[at] = self.places[self.used];
                // The larger range may meet ranges that the smaller one did not.
                at = 0;
            } else {
                at += 1;
            }
        }
        match self.places.get_mut(self.used) {
            Some(place) => {
                *place = (key, start, end);
                self.used += 1;
            }
            None => self.overflow = true,
        }
    }

    /// Requests a flush of everything.
    pub fn add_everything(&mut self) {
        self.overflow = true;
    }

    /// Whether everything has to be flushed.
    pub fn is_everything(&self) -> bool {
        self.overflow
    }

    /// Returns the ranges of one address space, which are disjoint.
    pub fn of(&self, key: K) -> impl Iterator<Item = Range<u64>> + Clone + '_ {
        let places = self.places[..self.used].iter();
        places
            .filter(move |place| place.0 == key)
            .map(|&(_, start, end)| start..end)
    }

    /// Returns the number of pages in the ranges of one address space.
    pub fn pages(&self, key: K) -> u64 {
        self.of(key).map(|r| (r.end - r.start) / PAGE_SIZE).sum()
    }

    /// Removes all requests.
    pub fn clear(&mut self) {
        self.used = 0;
        self.overflow = false;
    }
}

#[cfg(test)]
mod tests {
    use super::Requests;
    use core::ops::Range;

    type Four = Requests<u8, 4>;

    fn pages(range: Range<u64>) -> Range<u64> {
        range.start * 4096..range.end * 4096
    }

    fn are(requests: &Four, key: u8, expected: &[(u64, u64)]) -> bool {
        let asked = |&(first, end)| requests.of(key).any(|range| range == pages(first..end));
        requests.of(key).count() == expected.len() && expected.iter().all(asked)
    }

    #[test]
    fn what_overlaps_or_adjoins_is_one() {
        let mut requests = Four::new(0);
        for turn in 0..1000 {
            requests.add(1, pages(10 + turn % 3..20 + turn % 7));
        }
        assert!(are(&requests, 1, &[(10, 26)]) && !requests.is_everything());
        requests.add(1, pages(30..31));
        requests.add(1, pages(40..50));
        requests.add(1, pages(5..6));
        assert!(are(&requests, 1, &[(10, 26), (30, 31), (40, 50), (5, 6)]));
        assert_eq!(requests.pages(1), 16 + 1 + 10 + 1);
        // Meets two ranges, and no third through them.
        requests.add(1, pages(26..30));
        assert!(are(&requests, 1, &[(10, 31), (40, 50), (5, 6)]));
        requests.add(1, pages(0..100));
        assert!(are(&requests, 1, &[(0, 100)]) && !requests.is_everything());
    }

    #[test]
    fn spaces_are_kept_apart() {
        let mut requests = Four::new(0);
        requests.add(1, pages(0..2));
        requests.add(2, pages(1..3));
        assert!(are(&requests, 1, &[(0, 2)]) && are(&requests, 2, &[(1, 3)]));
        assert!(are(&requests, 3, &[]));
    }

    #[test]
    fn everything_once_there_is_no_place() {
        let mut requests = Four::new(0);
        (0..4).for_each(|n| requests.add(1, pages(2 * n..2 * n + 1)));
        assert!(!requests.is_everything());
        requests.add(1, pages(6..7));
        assert!(!requests.is_everything());
        requests.add(1, pages(8..9));
        assert!(requests.is_everything());
        requests.clear();
        assert!(!requests.is_everything() && are(&requests, 1, &[]));
    }
}
