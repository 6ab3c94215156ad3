//! The descriptor of a frame, on a cache line of its own.
//!
//! *Writes*: this line. While the frame is free, the allocator writes it, under its lock. While the frame is
//! used, its user does: a fault before it publishes the frame, fork, and the operation that unmaps it
//! afterwards. The shared zero page's descriptor is never written after start-up.
//!
//! # An anonymous page's mappings
//!
//! `map_count` counts the entries that map the frame, in all address spaces. The mark *exclusive* says that
//! there is one entry, and either always was one, or a write found no other. Then only the space of that
//! entry writes the descriptor, by plain stores, and a write to the page never copies. Fork clears the mark
//! and adds a mapping. While there are several mappings, the count changes by read-modify-writes, and the
//! mark stays clear. Only an operation that has claimed the entry of the last mapping may set it again.
//!
//! # Pins
//!
//! A long-term access to an anonymous page from outside its program takes a *pin*, under a claim of the
//! page's entry and only while the page is exclusive. So no mapping is added or removed at that moment, and
//! plain stores still change an exclusive page without pins. A pinned page stays exclusive while it is
//! mapped: fork copies it. The operation that removes the last use frees the frame.
//!
//! # A file's page
//!
//! The word `uses` has three counts of a file's page: the file's page cache, the entries that map the page,
//! and the *pins* to read or write it. The operation that removes the last use frees the frame. New mappings
//! and pins are added only while the cache holds the page, so the word never leaves 0 again.
//!
//! # When
//!
//! Each mapping is counted from before its entry is published (rule R7) until after the flush that follows
//! its removal. An operation that finds a single mapping may allow writes to the page, so no other TLB may
//! still hold it.

use faultless_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use faultless_sync::{Mutant, mutant};

/// The use of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// No use yet.
    pub const NONE: Flags = Flags(0);
    /// In the allocator's free lists.
    pub const FREE: Flags = Flags(1);
    /// A page of anonymous memory.
    pub const ANONYMOUS: Flags = Flags(2);
    /// Anonymous, and mapped by a single entry: a write never copies.
    pub const EXCLUSIVE: Flags = Flags(4);
    /// A page table.
    pub const TABLE: Flags = Flags(8);
    /// Split into small objects.
    pub const SLAB: Flags = Flags(16);
    /// Not the allocator's: a hole between its ranges of memory.
    pub const ABSENT: Flags = Flags(32);
    /// Used by the port itself; see [`Flags::of_port`].
    const PORT: Flags = Flags(64);
    /// The structures of an address space.
    pub const SPACE: Flags = Flags(128);
    /// A page of a file, or of shared memory.
    pub const FILE: Flags = Flags(256);
    /// Beside [`Flags::FILE`]: the page is of shared memory, not of a file.
    pub const SHARED_MEMORY: Flags = Flags(512);
    /// Swapped-out pages in memory, and the tables of swap devices.
    pub const SWAP: Flags = Flags(1024);
    /// Beside [`Flags::FILE`]: the page may differ from what its pager has.
    pub const DIRTY: Flags = Flags(2048);
    /// Beside [`Flags::FILE`]: the page was not read or written since reclaim has last looked at it.
    pub const IDLE: Flags = Flags(4096);
    /// A program has marked the page idle, and it was not seen used since (Linux: `page_idle`).
    pub const PAGE_IDLE: Flags = Flags(8192);
    /// The page was used before a look for idle pages took its accessed bits away: for reclaim (Linux: `PG_young`).
    pub const PAGE_YOUNG: Flags = Flags(16384);
    /// Of the first frame of a huge page. Beside [`Flags::ANONYMOUS`]: entries map it as a whole ([`crate::whole`]). Beside
    /// [`Flags::FILE`]: all its frames are pages of one object, side by side.
    pub const WHOLE: Flags = Flags(32768);
    /// The shift of the port's own number.
    const PURPOSE: u32 = 16;

    /// Returns the flags of a frame that the port uses itself, for a purpose with a number of its own below
    /// 16.
    pub const fn of_port(purpose: u32) -> Flags {
        Flags(Self::PORT.0 | purpose << Self::PURPOSE)
    }

    /// Returns the port's purpose of the frame, if it has one.
    pub const fn port(self) -> Option<u32> {
        if self.has(Self::PORT) {
            Some(self.0 >> Self::PURPOSE)
        } else {
            None
        }
    }

    /// Returns the union of both.
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
/// In `uses`: one pin. The 32 bits below count mappings.
const PIN: u64 = 1 << 32;

/// The maximum number of pins of a page: as on Linux, which counts 2^31 in steps of 1,024. There is room for
/// 2^31, so that CPUs that check and add concurrently stay below that, too.
pub const MOST_PINS: u32 = 1 << 21;

/// The reason that a page was not pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPinned {
    /// The page cache no longer holds the page.
    Gone,
    /// The page has [`MOST_PINS`] pins.
    TooOften,
}

/// The effect of a fork on a page ([`Descriptor::share`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The page has one more mapping.
    Shared,
    /// None: the page is pinned, and stays exclusive.
    Pinned,
    /// None: it is a page of a file.
    File,
}

/// A frame's descriptor.
#[derive(Debug)]
#[repr(align(64))]
pub struct Descriptor {
    /// Entries that map the frame, pins, and whether a page cache holds it.
    uses: AtomicU64,
    flags: AtomicU32,
    /// The order of a free block; of the first frame of a huge page, the entries that map it as a whole.
    order: AtomicU32,
    /// The id of the owner: of an exclusive anonymous page its address space, of a shared one the family of
    /// spaces, of a file's page the file.
    owner: AtomicU64,
    /// The page number in the owner, for the reverse map. A space that has moved a shared page has it
    /// elsewhere.
    index: AtomicU64,
    /// The next frame of a frame list or free list, plus 1; 0 ends it.
    next: AtomicU64,
    /// The previous frame of a free list, plus 1; of a frame of a huge page, a table for its split.
    previous: AtomicU64,
    /// The use for which an audit has entered the frame, and how often.
    entered: AtomicU32,
    times: AtomicU32,
    /// Of the first frame of a block of the pool: the frames of it that are used, plus 1.
    pooled: AtomicU32,
}

impl Default for Descriptor {
    fn default() -> Self {
        Self::new()
    }
}

impl Descriptor {
    /// Returns the descriptor of a frame that the allocator does not have yet.
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
            pooled: AtomicU32::new(0),
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

    /// Sets a new index for an exclusive page that has moved in its space. Its uses stay.
    #[inline]
    pub fn move_to(&self, index: u64) {
        self.index.store(index, Ordering::Relaxed);
    }

    /// Adds the mapping of a fork to an anonymous page that the caller's space maps. Only hardware can use
    /// that entry meanwhile. The page then belongs to this family of spaces. A page of a file, or a pinned
    /// page, stays unchanged.
    #[inline]
    pub fn share(&self, family: u64) -> Sharing {
        let flags = self.flags();
        if flags.has(Flags::EXCLUSIVE) {
            if !self.is_sole_use() && !mutant(Mutant::PinsNotTested) {
                return Sharing::Pinned;
            }
            // The only mapping is the caller's: nothing else writes this descriptor.
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

    /// Whether the caller's mapping of a page is its only use: there is no other mapping and no pin. `true`
    /// stays true while the page's entry is claimed, or admits no new claims.
    #[inline]
    pub fn is_sole_use(&self) -> bool {
        // Acquire: pairs with the release in `unmap` and `unpin`.
        self.uses.load(Ordering::Acquire) == 1
    }

    /// Whether an anonymous page that the caller's space maps has no other mapping. `true` stays true until
    /// that space forks; `false` may change.
    #[inline]
    pub fn is_sole(&self) -> bool {
        // Acquire: pairs with the release in `unmap`. Other spaces have finished their accesses to the page,
        // such as reading it for a copy.
        self.flags().has(Flags::EXCLUSIVE) || self.uses.load(Ordering::Acquire) == 1
    }

    /// Makes the page exclusive again if the caller's mapping is the only one. Returns whether it is
    /// exclusive now. The caller has claimed its entry and validated afterwards, so no fork of its space is
    /// in progress.
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

    /// Removes one mapping of a page. Returns whether that was the last use: the caller then frees the frame
    /// after its flush. If it is not the last use, the flush comes before this call (see the module).
    #[inline]
    pub fn unmap(&self) -> bool {
        if self.is_sole_use() {
            // The only use is the caller's, which has emptied or claimed the entry: no other use can be
            // added.
            self.uses.store(0, Ordering::Relaxed);
            return true;
        }
        // Release: pairs with the acquire in `is_sole`, and with the acquire here, when another operation
        // removes the last mapping and frees the frame.
        let order = if mutant(Mutant::CountRelaxed) {
            Ordering::Relaxed
        } else {
            Ordering::AcqRel
        };
        self.uses.fetch_sub(1, order) == 1
    }

    /// The same where the caller's mapping is known to be the only use, and stays so.
    #[inline]
    pub fn unmap_sole(&self) {
        debug_assert!(self.is_sole_use(), "another use");
        self.uses.store(0, Ordering::Relaxed);
    }

    /// Whether the frame is mapped, pinned, or held by a cache.
    pub fn is_used(&self) -> bool {
        self.uses.load(Ordering::Relaxed) != 0
    }

    /// Returns the number of entries that map the frame.
    #[inline]
    pub fn map_count(&self) -> u32 {
        self.uses.load(Ordering::Relaxed) as u32
    }

    /// Makes the frame a file's page, held only by the file's page cache, before the cache publishes it.
    /// `kind` is [`Flags::FILE`], with [`Flags::SHARED_MEMORY`] for shared memory.
    pub fn set_file(&self, file: u64, index: u64, kind: Flags) {
        self.owner.store(file, Ordering::Relaxed);
        self.index.store(index, Ordering::Relaxed);
        self.flags.store(kind.0, Ordering::Relaxed);
        // Of an earlier use: the page may come to have a table deposited with it.
        self.set_previous(0);
        // Release: pairs with the acquire in `pin`.
        self.uses.store(HELD, Ordering::Release);
    }

    /// Adds a mapping to a file's page, if a page cache holds it. Returns whether it did. A counted frame
    /// keeps its identity until [`Descriptor::unmap`]. The caller verifies the identity in the cache after a
    /// full fence. Before that, the frame may be another page, or about to be removed.
    #[inline]
    pub fn map(&self) -> bool {
        self.add(1)
    }

    /// Pins a file's page. A pinned frame keeps its identity until [`Descriptor::unpin`].
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

    /// Pins an exclusive anonymous page. The caller has claimed its entry.
    ///
    /// # Errors
    /// [`NotPinned::TooOften`].
    pub fn pin_exclusive(&self) -> Result<(), NotPinned> {
        if self.pins() >= MOST_PINS {
            return Err(NotPinned::TooOften);
        }
        // A read-modify-write, because pins are removed at any moment. The claim orders what follows.
        self.uses.fetch_add(PIN, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the number of pins.
    #[inline]
    pub fn pins(&self) -> u32 {
        ((self.uses.load(Ordering::Relaxed) & !HELD) / PIN) as u32
    }

    /// Adds a use if a page cache holds the frame. Returns whether it did. A free frame and an anonymous page
    /// stay unchanged.
    #[inline]
    fn add(&self, one: u64) -> bool {
        let mut seen = self.uses.load(Ordering::Relaxed);
        while seen & HELD != 0 || mutant(Mutant::CountedTooLate) {
            // Acquire: pairs with the release that made the frame what it is now.
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

    /// Removes a pin. Returns whether the caller must now free the frame.
    pub fn unpin(&self) -> bool {
        // Release and acquire: accesses through the pin come before the next use of the frame. That use
        // follows the removal of the last use, here or in `unmap`.
        self.uses.fetch_sub(PIN, Ordering::AcqRel) == PIN
    }

    /// Removes all uses if they are exactly these, so that no operation can map, pin or find the page any
    /// more. Returns whether it did. The caller has claimed `maps` entries of the page; a cache that holds
    /// the page has hidden it.
    pub fn freeze(&self, maps: u32, is_held: bool) -> bool {
        let held = if is_held { HELD } else { 0 };
        // Acquire: pairs with the releases of removed uses. An operation that adds a use only to other uses,
        // or only while the cache holds the page, comes first or fails.
        self.uses
            .compare_exchange(
                u64::from(maps) | held,
                0,
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Undoes [`Descriptor::freeze`].
    pub fn thaw(&self, maps: u32, is_held: bool) {
        let held = if is_held { HELD } else { 0 };
        // Release: pairs with the acquire of an operation that maps or pins the page.
        self.uses.store(u64::from(maps) | held, Ordering::Release);
    }

    /// Marks a file's page as one that its pager cannot fill again as it is: before it is written, through a pin or an
    /// entry. The caller uses the page.
    #[inline]
    pub fn mark_dirty(&self) {
        if !self.flags().has(Flags::DIRTY) {
            // A read-modify-write, because several CPUs mark a page that they use.
            self.flags.fetch_or(Flags::DIRTY.0, Ordering::Relaxed);
        }
    }

    /// Whether the page was marked. Exact once its uses are frozen: a use that has marked it precedes that.
    pub fn is_dirty(&self) -> bool {
        self.flags().has(Flags::DIRTY)
    }

    /// Marks the page idle for programs ([`Flags::PAGE_IDLE`]), if the frame still has one. The page may have become another
    /// one meanwhile: that is new, and its entry says that it was used.
    pub fn set_page_idle(&self) {
        self.mark_page(Flags::PAGE_IDLE);
    }

    fn mark_page(&self, mark: Flags) {
        let marked = |flags| {
            let has_page = Flags(flags).has(Flags::ANONYMOUS) || Flags(flags).has(Flags::FILE);
            has_page.then_some(flags | mark.0)
        };
        let _ = self
            .flags
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, marked);
    }

    /// Whether it is.
    pub fn is_page_idle(&self) -> bool {
        self.flags().has(Flags::PAGE_IDLE)
    }

    /// Takes that mark away.
    pub fn clear_page_idle(&self) {
        self.flags.fetch_and(!Flags::PAGE_IDLE.0, Ordering::Relaxed);
    }

    /// Tells reclaim that the page was used, which its entries no longer say ([`Flags::PAGE_YOUNG`]).
    pub fn set_page_young(&self) {
        self.mark_page(Flags::PAGE_YOUNG);
        self.mark_used();
    }

    /// Whether that was told since this was last asked.
    pub fn take_page_young(&self) -> bool {
        let is_young = self.flags().has(Flags::PAGE_YOUNG);
        if is_young {
            self.flags
                .fetch_and(!Flags::PAGE_YOUNG.0, Ordering::Relaxed);
        }
        is_young
    }

    /// Marks a file's page as one that is not used, until [`Descriptor::mark_used`]. Returns whether it was so marked
    /// already. The caller sees the page in its cache; no harm is done if it has become another page meanwhile.
    pub fn mark_idle(&self) -> bool {
        let before = self.flags.fetch_or(Flags::IDLE.0, Ordering::Relaxed);
        Flags(before).has(Flags::IDLE)
    }

    /// Marks a page as used, by a way that no entry shows.
    #[inline]
    pub fn mark_used(&self) {
        let idle = Flags::IDLE.and(Flags::PAGE_IDLE).0;
        if self.flags().0 & idle != 0 {
            self.flags.fetch_and(!idle, Ordering::Relaxed);
        }
    }

    /// Makes the frame the page that `other` was until it was frozen, with the same mappings and holder.
    pub fn become_page(&self, other: &Descriptor, maps: u32, is_held: bool) {
        let (owner, index) = other.owner();
        self.owner.store(owner, Ordering::Relaxed);
        self.index.store(index, Ordering::Relaxed);
        self.set_flags(other.flags());
        let held = if is_held { HELD } else { 0 };
        // Release: pairs with the acquire of an operation that maps or pins a file's page.
        self.uses.store(u64::from(maps) | held, Ordering::Release);
    }

    /// Whether a page cache holds the page.
    pub fn is_held(&self) -> bool {
        self.uses.load(Ordering::Relaxed) & HELD != 0
    }

    /// Removes the page cache's hold. Returns whether the caller must now free the frame.
    pub fn let_go(&self) -> bool {
        self.uses.fetch_and(!HELD, Ordering::AcqRel) == HELD
    }

    /// Returns the use of the frame.
    #[inline]
    pub fn flags(&self) -> Flags {
        Flags(self.flags.load(Ordering::Relaxed))
    }

    /// Sets the use of the frame.
    pub fn set_flags(&self, flags: Flags) {
        self.flags.store(flags.0, Ordering::Relaxed);
    }

    /// Returns the owner and the index of a page.
    pub fn owner(&self) -> (u64, u64) {
        (
            self.owner.load(Ordering::Relaxed),
            self.index.load(Ordering::Relaxed),
        )
    }

    /// Returns the list link: a value of the list's owner.
    #[inline]
    pub fn link(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Sets the list link.
    #[inline]
    pub fn set_link(&self, link: u64) {
        self.next.store(link, Ordering::Relaxed);
    }

    /// Returns what was last deposited with the first frame of a huge page: a value of the depositor.
    #[inline]
    pub fn deposit(&self) -> u64 {
        self.previous()
    }

    /// Deposits a value with the first frame of a huge page, while that is mapped as a whole.
    #[inline]
    pub fn set_deposit(&self, value: u64) {
        self.set_previous(value);
    }

    /// Replaces one value that is deposited by another. Returns whether it was there.
    pub fn swap_deposit(&self, old: u64, new: u64) -> bool {
        // Acquire and release: what a table held comes before what its next owner writes.
        self.previous
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    pub(crate) fn previous(&self) -> u64 {
        self.previous.load(Ordering::Relaxed)
    }

    pub(crate) fn set_previous(&self, link: u64) {
        self.previous.store(link, Ordering::Relaxed);
    }

    /// Returns the use that an audit has entered, and how often.
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

    pub(crate) fn pooled(&self) -> &AtomicU32 {
        &self.pooled
    }

    pub(crate) fn flags_word(&self) -> &AtomicU32 {
        &self.flags
    }

    pub(crate) fn order_word(&self) -> &AtomicU32 {
        &self.order
    }

    pub(crate) fn remove_flags(&self, flags: Flags) {
        // Release: pairs with the acquire in `unmap` and `is_sole`, as the removal of the use of the whole that follows.
        self.flags.fetch_and(!flags.0, Ordering::Release);
    }

    /// Makes an exclusive page one of a family of spaces.
    pub(crate) fn set_owner_of_family(&self, family: u64, flags: Flags) {
        self.owner.store(family, Ordering::Relaxed);
        self.flags.store(flags.0, Ordering::Relaxed);
    }

    /// Adds a mapping to an anonymous page that the caller's space maps already, in another way.
    pub fn add_mapping(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
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

    /// Near the limit, the other counts in the same word stay unchanged.
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
