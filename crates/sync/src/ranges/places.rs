//! What is in the places of a [`super::Ranges`], and who keeps whom out. Under its lock.

use core::ops::Range;

use crate::flaw::{Flaw, flawed};

/// How many may have ranges, wait for them, or zap at once. Others wait for a place.
pub const PLACES: usize = if cfg!(any(loom, shuttle)) { 6 } else { 32 };

/// What somebody wants, or has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    ranges: [Range<u64>; 2],
    /// Where nothing may be zapped.
    new: Range<u64>,
    is_shared: bool,
    is_beside_replacing: bool,
}

impl Wish {
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
    fn excludes(&self, other: &Self) -> bool {
        !(self.is_shared && other.is_shared) && other.ranges.iter().any(|range| self.meets(range))
    }
}

/// Whether two ranges have something in common; an empty one has not.
fn meet(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start.max(other.start) < one.end.min(other.end)
}

/// The places of a set of bits.
pub(super) fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let first = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(first)
    })
}

struct Place {
    /// When it was taken: who came before has less.
    number: u64,
    wish: Wish,
}

/// All places. Each is free, *taken* by somebody who has what he wished for or waits for it, or
/// *zapped*: what was in its range is being cleared away. In one that is *replacing* something has
/// already taken the place of that. In one that is both, something moves from the first range, which is
/// zapped, to the second, which is replacing.
pub(super) struct Places {
    places: [Place; PLACES],
    /// A bit for each place that is not free.
    used: u64,
    /// Of these: a bit for each that is being zapped, or was, and is noted still.
    pub(super) zapped: u64,
    /// A bit for each taken one that will be zapped: what is there says so already.
    pub(super) announced: u64,
    /// A bit for each that is replacing.
    pub(super) replacing: u64,
    /// Of both: a bit for each of which somebody else is to say that it was.
    pub(super) left: u64,
    /// The number of the next wish.
    pub(super) next: u64,
    /// Who waits for a place: the number of who gets the next one, and of who comes next.
    pub(super) queue: Range<u64>,
    /// How many wait for anything.
    pub(super) waiting: u32,
}

impl Places {
    pub(super) fn new() -> Self {
        const FREE: Place = Place {
            number: 0,
            wish: Wish::to_change(0..0),
        };
        Self {
            places: [FREE; PLACES],
            used: 0,
            zapped: 0,
            announced: 0,
            replacing: 0,
            left: 0,
            next: 0,
            queue: 0..0,
            waiting: 0,
        }
    }

    /// Takes a place, if there is one.
    pub(super) fn take(&mut self, wish: &Wish) -> Option<usize> {
        let number = self.next_place()?;
        self.take_place(number);
        self.places[number].wish.clone_from(wish);
        Some(number)
    }

    /// Whether nobody has, waits for, or zaps anything of some ranges; and nobody waits for a place.
    #[inline]
    pub(super) fn are_nobodys(&self, ranges: &[Range<u64>]) -> bool {
        let mut others = bits(self.used).map(|other| &self.places[other].wish);
        let is_met = others.any(|other| ranges.iter().any(|range| other.meets(range)));
        self.queue.is_empty() && (!is_met || flawed(Flaw::AtOnceBesideHolder))
    }

    /// The same of one, whoever zaps there.
    #[inline]
    pub(super) fn is_nobodys_beside_zaps(&self, range: &Range<u64>) -> bool {
        self.queue.is_empty()
            && (!self.is_barred(self.used, range) || flawed(Flaw::AtOnceBesideHolder))
    }

    /// Whether those of some places keep others than what is new out of a range.
    #[inline]
    fn is_barred(&self, places: u64, range: &Range<u64>) -> bool {
        bits(places).any(|other| self.barred(other).iter().any(|own| meet(own, range)))
    }

    /// The number of the place that is taken next, if there is one.
    #[inline]
    pub(super) fn next_place(&self) -> Option<usize> {
        let number = (!self.used).trailing_zeros() as usize;
        (number < PLACES).then_some(number)
    }

    /// Takes it.
    #[inline]
    pub(super) fn take_place(&mut self, number: usize) {
        debug_assert_eq!(self.next_place(), Some(number), "it is another's");
        self.used |= 1 << number;
        self.places[number].number = self.next;
        self.next += 1;
    }

    /// Whether nobody has anything, waits, or zaps.
    #[inline]
    pub(super) fn is_unused(&self) -> bool {
        self.used == 0
    }

    /// Whether anybody has something, or waits, who does not zap.
    pub(super) fn has_holders(&self) -> bool {
        self.used & !(self.zapped | self.replacing) != 0
    }

    /// Whether anybody else has something, or waits, who does not zap.
    pub(super) fn has_others(&self, number: usize) -> bool {
        self.used & !(self.zapped | self.replacing | 1 << number) != 0
    }

    /// Frees all places of a set.
    pub(super) fn free(&mut self, set: u64) {
        self.used &= !set;
        self.zapped &= !set;
        self.announced &= !set;
        self.replacing &= !set;
        self.left &= !set;
    }

    /// Whether one of the ranges of a place has all of `range`.
    pub(super) fn has(&self, number: usize, range: &Range<u64>) -> bool {
        let has = |own: &Range<u64>| own.start <= range.start && range.end <= own.end;
        self.places[number].wish.ranges.iter().any(has)
    }

    /// Gives a place a second range, instead of the one that it may have had, if nobody has that or
    /// waits for it.
    pub(super) fn extend(&mut self, number: usize, range: &Range<u64>) -> bool {
        if self.has(number, range) {
            return true;
        }
        if self.is_barred(self.used & !(1 << number), range) {
            return false;
        }
        self.places[number].wish.ranges[1] = range.clone();
        true
    }

    /// From here on a place is one that is zapped.
    pub(super) fn begin_zap(&mut self, number: usize, range: Range<u64>) {
        self.announced &= !(1 << number);
        self.replacing &= !(1 << number);
        self.zapped |= 1 << number;
        self.places[number].wish = Wish::to_change(range);
    }

    /// From here on a place is one that is replacing.
    pub(super) fn begin_replace(&mut self, number: usize, ranges: [Range<u64>; 2]) {
        let [first, second] = ranges;
        self.replacing |= 1 << number;
        self.places[number].wish = Wish::to_change(first).and(second);
    }

    /// From here on something moves from one range, which is zapped, to another, which is replacing.
    pub(super) fn begin_move(&mut self, number: usize, from: Range<u64>, to: Range<u64>) {
        self.begin_zap(number, from);
        self.replacing |= 1 << number;
        self.places[number].wish.ranges[1] = to;
    }

    /// Of a place the ranges that keep out not only what is new.
    fn barred(&self, number: usize) -> &[Range<u64>] {
        let ranges = &self.places[number].wish.ranges;
        match (self.zapped >> number & 1, self.replacing >> number & 1) {
            (0, _) => ranges,
            (_, 0) => &[],
            _ => &ranges[1..],
        }
    }

    /// The ranges of a place.
    pub(super) fn ranges(&self, number: usize) -> impl Iterator<Item = Range<u64>> {
        let ranges = self.places[number].wish.ranges.clone();
        ranges.into_iter().filter(|range| !range.is_empty())
    }

    /// Whether somebody who came before has, or waits for, what this place excludes: not who zaps, or
    /// replaces something.
    pub(super) fn is_kept_out(&self, number: usize) -> bool {
        let own = &self.places[number];
        let passed = self.zapped | self.replacing | 1 << number;
        bits(self.used & !passed).any(|other| {
            let other = &self.places[other];
            other.number < own.number && own.wish.excludes(&other.wish)
        })
    }

    /// Whether somebody zaps, or will, where a wish puts something new, or replaces something where it may
    /// not be beside that; and came before `limit`.
    pub(super) fn is_in_the_way(&self, wish: &Wish, limit: u64) -> bool {
        bits(self.zapped | self.announced | self.replacing).any(|number| {
            let other = &self.places[number];
            let is_zap = (self.zapped | self.announced) & 1 << number != 0;
            let is_replacing = self.replacing & 1 << number != 0 && !wish.is_beside_replacing;
            let is_barred = || self.barred(number).iter().any(|range| wish.meets(range));
            let is_met = is_zap && other.wish.meets(&wish.new) || is_replacing && is_barred();
            other.number < limit && is_met
        })
    }

    /// Whether somebody zaps, or replaces something, in the range of a wish.
    pub(super) fn meets_zaps(&self, wish: &Wish) -> bool {
        bits(self.zapped | self.replacing)
            .any(|other| self.ranges(other).any(|range| wish.meets(&range)))
    }
}
