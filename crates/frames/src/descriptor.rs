//! What is known about a frame, on a cache line of its own.
//!
//! Who writes it: while the frame is free, the allocator under its lock; while
//! it is used, its user: a fault before it publishes the frame, fork, whoever
//! takes its entry away afterwards. The shared zero page's descriptor is never
//! written after start-up.
//!
//! # An anonymous page's mappings
//!
//! `map_count` counts the entries that map the frame, in all address spaces. The
//! mark *exclusive* says that there is one and always was, or that a write found
//! itself alone: then only that entry's space writes here, by plain stores, and a
//! write never copies. Fork takes the mark away and adds a mapping; while there
//! is more than one, the count changes by read-modify-writes, and nobody sets
//! the mark. Only who has the last mapping, its entry claimed, may set it again.
//!
//! # Pins
//!
//! Whoever takes an anonymous page for long, to read or write it beside its program, adds
//! a *pin*, with the entry of the page claimed, and only while the page is exclusive. So no
//! mapping is added or taken away at that moment, and a page that is exclusive and has no
//! pin is changed by plain stores as before. A pinned page stays exclusive as long as it is
//! mapped: fork copies it. The frame is freed by whoever takes its last use away.
//!
//! # A file's page
//!
//! A page of a file is held by the file's page cache, by each entry that maps it, and
//! by whoever has *pinned* it to read or write it: three counts in one word, `uses`.
//! Whoever takes the last away frees the frame. Only while the cache holds it may it
//! be mapped or pinned anew, so that the word leaves 0 never again.
//!
//! # When
//!
//! Each mapping is counted from before its entry is published (rule R7) until
//! after the flush that follows its removal: whoever finds itself alone may let
//! the page be written, and no TLB elsewhere may still show it.

use faultless_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use faultless_sync::{Mutant, mutant};

/// What a frame is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// Nothing yet.
    pub const NONE: Flags = Flags(0);
    /// In the allocator's free lists.
    pub const FREE: Flags = Flags(1);
    /// A page of anonymous memory.
    pub const ANONYMOUS: Flags = Flags(2);
    /// Anonymous, and mapped by one entry alone: a write never copies.
    pub const EXCLUSIVE: Flags = Flags(4);
    /// A page table.
    pub const TABLE: Flags = Flags(8);
    /// Split into small objects.
    pub const SLAB: Flags = Flags(16);
    /// Not the allocator's: a hole between the parts of memory it was given.
    pub const ABSENT: Flags = Flags(32);
    /// Used by the port itself; see [`Flags::of_port`].
    const PORT: Flags = Flags(64);
    /// An address space: what it is made of.
    pub const SPACE: Flags = Flags(128);
    /// A page of a file, or of shared memory.
    pub const FILE: Flags = Flags(256);
    /// Beside [`Flags::FILE`]: of shared memory, and of no file.
    pub const SHARED_MEMORY: Flags = Flags(512);
    /// Where the port's own number begins.
    const PURPOSE: u32 = 16;

    /// Used by the port itself, which says for what by a number of its own below 16.
    pub const fn of_port(purpose: u32) -> Flags {
        Flags(Self::PORT.0 | purpose << Self::PURPOSE)
    }

    /// What the port uses the frame for, if it does.
    pub const fn port(self) -> Option<u32> {
        if self.has(Self::PORT) {
            Some(self.0 >> Self::PURPOSE)
        } else {
            None
        }
    }

    /// Both.
    pub const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Whether all of `other` are set.
    #[inline]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// In `uses`: a page cache holds the frame.
const HELD: u64 = 1 << 63;
/// In `uses`: one pin. Mappings are below, 2^32 of them.
const PIN: u64 = 1 << 32;

/// Pins that one page may have: as many as on Linux, which counts 2^31 in steps of 1,024. There
/// is room for 2^31, so that CPUs that look and add at once stay below that, too.
pub const MOST_PINS: u32 = 1 << 21;

/// Why a page was not pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPinned {
    /// The cache has let go of it.
    Gone,
    /// It has [`MOST_PINS`].
    TooOften,
}

/// What became of a page that a fork comes to ([`Descriptor::share`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// It has one mapping more.
    Shared,
    /// Nothing: somebody has pinned it, and it stays exclusive.
    Pinned,
    /// Nothing: it is a page of a file.
    File,
}

/// A frame's descriptor.
#[derive(Debug)]
#[repr(align(64))]
pub struct Descriptor {
    /// Entries that map the frame, pins, and whether a page cache holds it.
    uses: AtomicU64,
    flags: AtomicU32,
    /// The order of a free block.
    order: AtomicU32,
    /// The address space of an exclusive anonymous page, by id; the family of spaces of one
    /// that is shared.
    owner: AtomicU64,
    /// Which page of the owner it is: the reverse map. A shared page may be elsewhere in a
    /// space that has moved it.
    index: AtomicU64,
    /// The next frame of a chain or free list, plus 1; 0 ends it.
    next: AtomicU64,
    /// The previous frame of a free list, plus 1.
    previous: AtomicU64,
    /// Whose a census has found the frame to be, and how often.
    entered: AtomicU32,
    times: AtomicU32,
}

impl Default for Descriptor {
    fn default() -> Self {
        Self::new()
    }
}

impl Descriptor {
    /// A frame that the allocator does not have yet.
    pub fn new() -> Self {
        Self {
            uses: AtomicU64::new(0),
            flags: AtomicU32::new(Flags::ABSENT.0),
            order: AtomicU32::new(0),
            owner: AtomicU64::new(0),
            index: AtomicU64::new(0),
            next: AtomicU64::new(0),
            previous: AtomicU64::new(0),
            entered: AtomicU32::new(0),
            times: AtomicU32::new(0),
        }
    }

    /// Makes the frame an exclusive anonymous page, mapped once (rule R7:
    /// before the entry is published; the publishing store orders it).
    #[inline]
    pub fn set_anonymous(&self, owner: u64, index: u64) {
        self.owner.store(owner, Ordering::Relaxed);
        self.index.store(index, Ordering::Relaxed);
        self.flags
            .store(Flags::ANONYMOUS.and(Flags::EXCLUSIVE).0, Ordering::Relaxed);
        self.uses.store(1, Ordering::Relaxed);
    }

    /// The exclusive page of `owner` is at another place there. Its uses stay.
    #[inline]
    pub fn move_to(&self, index: u64) {
        self.index.store(index, Ordering::Relaxed);
    }

    /// Adds a mapping to an anonymous page that the caller's space maps, where nothing but
    /// hardware can use that entry meanwhile: fork. The page is then one of this family
    /// of spaces. A page of a file, or one that is pinned, is not touched.
    #[inline]
    pub fn share(&self, family: u64) -> Sharing {
        let flags = self.flags();
        if flags.has(Flags::EXCLUSIVE) {
            if !self.is_sole_use() && !mutant(Mutant::PinsNotTested) {
                return Sharing::Pinned;
            }
            // One mapping, and it is the caller's: nobody else writes here.
            self.owner.store(family, Ordering::Relaxed);
            self.flags.store(Flags::ANONYMOUS.0, Ordering::Relaxed);
            self.uses.store(2, Ordering::Relaxed);
        } else if flags.has(Flags::FILE) {
            return Sharing::File;
        } else {
            self.uses.fetch_add(1, Ordering::Relaxed);
        }
        Sharing::Shared
    }

    /// Whether a page that the caller's space maps is used for nothing else, neither mapped
    /// nor pinned. "Yes" stays true while its entry is claimed, or admits no new claims.
    #[inline]
    pub fn is_sole_use(&self) -> bool {
        // Acquire: pairs with the release in `unmap` and `unpin`.
        self.uses.load(Ordering::Acquire) == 1
    }

    /// Whether an anonymous page that the caller's space maps has no other
    /// mapping. "Yes" stays true until that space forks; "no" may change.
    #[inline]
    pub fn is_sole(&self) -> bool {
        // Acquire: pairs with the release in `unmap`. What others did with the
        // page, reading it to copy it for one, is done.
        self.flags().has(Flags::EXCLUSIVE) || self.uses.load(Ordering::Acquire) == 1
    }

    /// Makes the page exclusive again if the caller's mapping is the only one.
    /// Whether it is exclusive now. The caller has claimed its entry, and
    /// validated since, so that no fork of its space is under way.
    #[inline]
    pub fn take_over(&self, owner: u64, index: u64) -> bool {
        if self.flags().has(Flags::EXCLUSIVE) {
            return true;
        }
        if !self.is_sole() {
            return false;
        }
        self.set_anonymous(owner, index);
        true
    }

    /// Takes one mapping away from a page; whether that was the last use,
    /// so that the frame is the caller's to free after its flush. Unless it is
    /// the last, the flush has been (see the module).
    #[inline]
    pub fn unmap(&self) -> bool {
        if self.is_sole_use() {
            // It is the caller's, which has taken its entry: no other use comes.
            self.uses.store(0, Ordering::Relaxed);
            return true;
        }
        // Release: pairs with the acquire in `is_sole`, and with this one's own in
        // whoever takes the last mapping away and frees the frame.
        let order = if mutant(Mutant::CountRelaxed) {
            Ordering::Relaxed
        } else {
            Ordering::AcqRel
        };
        self.uses.fetch_sub(1, order) == 1
    }

    /// Whether the frame is mapped, pinned, or held by a cache.
    pub fn is_used(&self) -> bool {
        self.uses.load(Ordering::Relaxed) != 0
    }

    /// How many entries map the frame.
    #[inline]
    pub fn map_count(&self) -> u32 {
        self.uses.load(Ordering::Relaxed) as u32
    }

    /// Makes the frame a file's page, held by the file's page cache alone; before
    /// the cache shows it. `kind` is [`Flags::FILE`], with [`Flags::SHARED_MEMORY`] if it is that.
    pub fn set_file(&self, file: u64, index: u64, kind: Flags) {
        self.owner.store(file, Ordering::Relaxed);
        self.index.store(index, Ordering::Relaxed);
        self.flags.store(kind.0, Ordering::Relaxed);
        // Release: pairs with the acquire in `pin`.
        self.uses.store(HELD, Ordering::Release);
    }

    /// Adds a mapping to a file's page, unless the cache has let go of it. A counted frame
    /// stays what it is until [`Descriptor::unmap`]; what that is, the caller asks the cache
    /// behind a full fence: until then it may be another page, or about to be none.
    #[inline]
    pub fn map(&self) -> bool {
        self.add(1)
    }

    /// Pins a file's page. A pinned frame stays what it is until [`Descriptor::unpin`].
    ///
    /// # Errors
    /// [`NotPinned`].
    pub fn pin(&self) -> Result<(), NotPinned> {
        if self.pins() >= MOST_PINS {
            return Err(NotPinned::TooOften);
        }
        match self.add(PIN) {
            true => Ok(()),
            false => Err(NotPinned::Gone),
        }
    }

    /// Pins an exclusive anonymous page, whose entry the caller has claimed.
    ///
    /// # Errors
    /// [`NotPinned::TooOften`].
    pub fn pin_exclusive(&self) -> Result<(), NotPinned> {
        if self.pins() >= MOST_PINS {
            return Err(NotPinned::TooOften);
        }
        // Pins go away at any moment, so not by a store; the claim orders what follows.
        self.uses.fetch_add(PIN, Ordering::Relaxed);
        Ok(())
    }

    /// How often the page is pinned.
    #[inline]
    pub fn pins(&self) -> u32 {
        ((self.uses.load(Ordering::Relaxed) & !HELD) / PIN) as u32
    }

    /// Adds a use while the cache holds the frame: one that is free, or somebody's
    /// anonymous page, is not touched.
    #[inline]
    fn add(&self, one: u64) -> bool {
        let mut seen = self.uses.load(Ordering::Relaxed);
        while seen & HELD != 0 || mutant(Mutant::CountedTooLate) {
            // Acquire: of the release with which the frame became what it is now.
            match self.uses.compare_exchange_weak(
                seen,
                seen + one,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Takes a pin away; whether the frame is now the caller's to free.
    pub fn unpin(&self) -> bool {
        // Release and acquire: what was done with the page comes before its next use, which
        // is whoever takes the last use away: here, or in `unmap`.
        self.uses.fetch_sub(PIN, Ordering::AcqRel) == PIN
    }

    /// Takes all uses away if they are these, so that nobody maps, pins or finds the page any
    /// more: the caller has claimed `maps` entries of it, and a cache that holds it
    /// shows it to nobody.
    pub fn freeze(&self, maps: u32, is_held: bool) -> bool {
        let held = if is_held { HELD } else { 0 };
        // Acquire: pairs with the releases of those who have let go. Whoever adds a use only
        // while there are some, or while the cache holds the page, comes before or fails.
        self.uses
            .compare_exchange(
                u64::from(maps) | held,
                0,
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Makes the frame the page that `other` was until it was frozen, mapped and held as
    /// that was.
    pub fn become_page(&self, other: &Descriptor, maps: u32, is_held: bool) {
        let (owner, index) = other.owner();
        self.owner.store(owner, Ordering::Relaxed);
        self.index.store(index, Ordering::Relaxed);
        self.set_flags(other.flags());
        let held = if is_held { HELD } else { 0 };
        // Release: pairs with the acquire of who maps or pins a file's page.
        self.uses.store(u64::from(maps) | held, Ordering::Release);
    }

    /// Whether a cache holds the page.
    pub fn is_held(&self) -> bool {
        self.uses.load(Ordering::Relaxed) & HELD != 0
    }

    /// The cache does not hold the page any more; whether the frame is now the
    /// caller's to free.
    pub fn let_go(&self) -> bool {
        self.uses.fetch_and(!HELD, Ordering::AcqRel) == HELD
    }

    /// What the frame is used for.
    #[inline]
    pub fn flags(&self) -> Flags {
        Flags(self.flags.load(Ordering::Relaxed))
    }

    /// Says what the frame is used for.
    pub fn set_flags(&self, flags: Flags) {
        self.flags.store(flags.0, Ordering::Relaxed);
    }

    /// The owner and index of an anonymous page.
    pub fn owner(&self) -> (u64, u64) {
        (
            self.owner.load(Ordering::Relaxed),
            self.index.load(Ordering::Relaxed),
        )
    }

    /// The link of a chain: a word of the chain's owner.
    #[inline]
    pub fn link(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Sets the link of a chain.
    #[inline]
    pub fn set_link(&self, link: u64) {
        self.next.store(link, Ordering::Relaxed);
    }

    pub(crate) fn previous(&self) -> u64 {
        self.previous.load(Ordering::Relaxed)
    }

    pub(crate) fn set_previous(&self, link: u64) {
        self.previous.store(link, Ordering::Relaxed);
    }

    /// What a census has entered: a use, and how often.
    pub(crate) fn entry(&self) -> (u32, u32) {
        (
            self.entered.load(Ordering::Relaxed),
            self.times.load(Ordering::Relaxed),
        )
    }

    pub(crate) fn enter(&self, as_what: u32, times: u32) {
        self.entered.store(as_what, Ordering::Relaxed);
        self.times.store(times, Ordering::Relaxed);
    }

    pub(crate) fn order(&self) -> u32 {
        self.order.load(Ordering::Relaxed)
    }

    pub(crate) fn set_order(&self, order: u32) {
        self.order.store(order, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// Near the limit, whatever else is counted in the same word stays what it is.
    #[test]
    fn pins_end_at_their_limit() {
        let most = u64::from(MOST_PINS) * PIN;
        let file = Descriptor::new();
        file.set_file(1, 2, Flags::FILE);
        assert!(file.map());
        file.uses.store(HELD + most - PIN + 1, Ordering::Relaxed);
        assert_eq!(file.pin(), Ok(()));
        for _ in 0..3 {
            assert_eq!(file.pin(), Err(NotPinned::TooOften));
        }
        assert!(file.is_held() && file.map_count() == 1 && file.pins() == MOST_PINS);
        assert!(!file.unpin());
        assert_eq!(file.pin(), Ok(()));

        let page = Descriptor::new();
        page.set_anonymous(1, 2);
        page.uses.store(most - PIN + 1, Ordering::Relaxed);
        assert_eq!(page.pin_exclusive(), Ok(()));
        assert_eq!(page.pin_exclusive(), Err(NotPinned::TooOften));
        assert!(!page.is_held() && page.map_count() == 1 && page.pins() == MOST_PINS);
        assert!(!page.unmap() && !page.is_held() && page.map_count() == 0);
    }
}
