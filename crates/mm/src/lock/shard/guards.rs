//! The slots of an operation in the lists of shards, in addition to its slot in the space's own list.

use core::ops::Range;

use faultless_sync::{LockRequest, PLACES, RangeGuard, RangeLock};

use crate::base::machine::Machine;
use crate::lock::Mappings;
use crate::lock::shard::{SHARDS, Shards};

/// Slots in the lists of shards. Few operations have any.
struct Places<'a, M: Machine> {
    space: &'a Mappings<M>,
    /// A bit for each shard with a slot in its list.
    had: u32,
    places: [u8; SHARDS],
}
const _: () = assert!(PLACES <= 256 && SHARDS <= 32);

/// Ranges that are held in the lists of shards.
pub(crate) struct ShardGuards<'a, M: Machine>(Places<'a, M>);

/// Ranges that are zapped or replacing, in the lists of shards.
pub(crate) struct ZapShardGuards<'a, M: Machine>(Places<'a, M>);

impl<'a, M: Machine> Places<'a, M> {
    fn none(space: &'a Mappings<M>) -> Self {
        Self {
            space,
            had: 0,
            places: [0; SHARDS],
        }
    }

    fn shards(&self) -> impl Iterator<Item = usize> + use<M> {
        let had = self.had;
        (0..SHARDS)
            .take_while(move |at| had >> at != 0)
            .filter(move |at| had >> at & 1 != 0)
    }

    fn list(&self, number: usize) -> Option<&'a RangeLock> {
        self.space
            .shards()
            .map(|shards| &*shards.get(number).ranges)
    }

    fn put(&mut self, number: usize, place: usize) {
        self.had |= 1 << number;
        self.places[number] = place as u8;
    }

    /// Calls `make` with each slot, its list, and the number of its shard.
    fn for_each(&self, mut make: impl FnMut(usize, &'a RangeLock, usize)) {
        for number in self.shards() {
            if let Some(list) = self.list(number) {
                make(number, list, self.places[number].into());
            }
        }
    }
}

impl<'a, M: Machine> ShardGuards<'a, M> {
    /// Returns no slots.
    pub(crate) fn none(space: &'a Mappings<M>) -> Self {
        Self(Places::none(space))
    }

    /// Acquires the ranges of a request in the lists of all shards that it meets, one after the other.
    /// Returns also whether a zap or a replacement runs there, and whether the request had to wait.
    pub(crate) fn lock(space: &'a Mappings<M>, wish: &LockRequest) -> (Self, bool, bool) {
        let mut own = Self::none(space);
        let (mut meets_zaps, mut has_waited) = (false, false);
        for (number, shard) in space.shards().into_iter().flat_map(Shards::all).enumerate() {
            let pages = shard.stem.pages();
            if wish.meets(&(pages.start..pages.end)) {
                space.make_room(&shard.ranges);
                let guard = shard.ranges.lock(wish, space.machine());
                meets_zaps |= guard.meets_zaps();
                has_waited |= guard.has_waited();
                own.0.put(number, guard.into_place());
            }
        }
        (own, meets_zaps, has_waited)
    }

    fn guard(list: &'a RangeLock, place: usize, space: &'a Mappings<M>) -> RangeGuard<'a, M> {
        list.guard_of(place, space.machine())
    }

    /// See [`RangeGuard::try_extend`].
    pub(crate) fn try_extend(&mut self, range: &Range<u64>) -> bool {
        let space = self.0.space;
        for (number, shard) in space.shards().into_iter().flat_map(Shards::all).enumerate() {
            let pages = shard.stem.pages();
            if pages.start >= range.end || range.start >= pages.end {
                continue;
            }
            let is_had = self.0.had & 1 << number != 0;
            let guard = match is_had {
                true => {
                    let place = self.0.places[number].into();
                    Some(Self::guard(&shard.ranges, place, space))
                }
                false => {
                    let wish = LockRequest::to_change(range.clone());
                    shard.ranges.try_lock(&wish, space.machine())
                }
            };
            let Some(guard) = guard else { return false };
            let is_extended = guard.try_extend(range);
            self.0.put(number, guard.into_place());
            if !is_extended {
                return false;
            }
        }
        true
    }

    /// See [`RangeGuard::announce_zap`].
    pub(crate) fn announce_zap(&self) {
        self.0.for_each(|_, list, place| {
            let guard = Self::guard(list, place, self.0.space);
            guard.announce_zap();
            guard.into_place();
        });
    }

    /// See [`RangeGuard::begin_zap`].
    pub(crate) fn begin_zap(self, range: &Range<u64>) -> ZapShardGuards<'a, M> {
        self.begin(|guard| guard.begin_zap(range.clone()).into_place())
    }

    /// See [`RangeGuard::begin_replace`].
    pub(crate) fn begin_replace(self, range: &Range<u64>) -> ZapShardGuards<'a, M> {
        self.begin(|guard| guard.begin_replace(range.clone()).into_place())
    }

    fn begin(mut self, change: impl Fn(RangeGuard<'a, M>) -> usize) -> ZapShardGuards<'a, M> {
        let space = self.0.space;
        let places = core::mem::replace(&mut self.0, Places::none(space));
        places.for_each(|_, list, place| {
            change(Self::guard(list, place, space));
        });
        ZapShardGuards(places)
    }
}

impl<M: Machine> Drop for ShardGuards<'_, M> {
    fn drop(&mut self) {
        if self.0.had != 0 {
            self.0
                .for_each(|_, list, place| drop(Self::guard(list, place, self.0.space)));
        }
    }
}

impl<'a, M: Machine> ZapShardGuards<'a, M> {
    /// Returns no slots.
    pub(crate) fn none(space: &'a Mappings<M>) -> Self {
        Self(Places::none(space))
    }

    /// See [`faultless_sync::ZapGuard::leave`].
    pub(crate) fn leave(&mut self) {
        let machine = self.0.space.machine();
        self.0
            .for_each(|_, list, place| list.zap_guard_of(place, machine).leave());
        self.0.had = 0;
    }

    /// Ends all of them.
    pub(crate) fn end(&mut self) {
        if self.0.had != 0 {
            let machine = self.0.space.machine();
            self.0
                .for_each(|_, list, place| drop(list.zap_guard_of(place, machine)));
            self.0.had = 0;
        }
    }
}

impl<M: Machine> Drop for ZapShardGuards<'_, M> {
    fn drop(&mut self) {
        self.end();
    }
}
