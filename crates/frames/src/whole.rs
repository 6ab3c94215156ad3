//! The first frame of a huge page: how many entries map the whole.
//!
//! The frames of a huge page have a descriptor each. While one space alone maps it, they are exclusive. When `fork` shares
//! it, the number of entries that map the whole goes up with the first frame. In each frame's own count, all of these
//! together are *one* use. So a space that splits its entry adds a use of its own to each frame, and the operation that
//! removes the last entry of the whole removes that one use from each.
//!
//! * The mark [`Flags::WHOLE`] says that the number means something.
//! * The number goes up only by a fork of a space with such an entry, which other operations of that space exclude. So a
//!   space that reads 1 knows that the only entry is its own.
//!
//! A huge page of a *memory object* is counted otherwise: each entry that maps it is a use of each of its frames, because
//! entries come and go without any that was there before. The mark is then the object's: it says that all frames are in their
//! places in the object, and the number only what is shown to programs.
//!
//! *Writes*: the first frame's descriptor.

use faultless_sync::atomic::Ordering;

use crate::descriptor::{Descriptor, Flags};

impl Descriptor {
    /// Makes the exclusive frame the first of a huge page that one entry maps. Before that is published.
    pub fn begin_whole(&self) {
        self.order_word().store(1, Ordering::Relaxed);
        self.set_flags(self.flags().and(Flags::WHOLE));
    }

    /// Counts one more entry that maps the whole; the caller's space has one.
    pub fn share_whole(&self) {
        self.order_word().fetch_add(1, Ordering::Relaxed);
    }

    /// Makes an exclusive frame one of a family of spaces, with the same count of uses. Nothing else writes it meanwhile.
    pub fn share_part(&self, family: u64) {
        let mark = self.flags().0 & Flags::WHOLE.0;
        self.set_owner_of_family(family, Flags(mark).and(Flags::ANONYMOUS));
    }

    /// Whether this is the first frame of a huge page that entries map as a whole.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.flags().has(Flags::WHOLE.and(Flags::ANONYMOUS))
    }

    /// Whether several spaces map it, or have mapped it, since it was last exclusive.
    #[inline]
    pub fn is_shared_whole(&self) -> bool {
        self.is_whole() && !self.flags().has(Flags::EXCLUSIVE)
    }

    /// Returns how many entries map the whole.
    #[inline]
    pub fn whole_maps(&self) -> u32 {
        // Acquire: pairs with the release in `drop_whole`.
        self.order_word().load(Ordering::Acquire)
    }

    /// Removes one entry that maps the whole, which the caller has taken out or claimed, and flushed. Returns whether it was
    /// the last: the caller then removes the use of the whole from each frame.
    pub fn drop_whole(&self) -> bool {
        // Release and acquire: accesses through the entry precede what the last one, or a lone one, does.
        let is_last = self.order_word().fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last {
            self.end_whole();
        }
        is_last
    }

    /// Ends the count: the caller's entry is the only one, and makes way for entries of single pages.
    pub fn end_whole(&self) {
        self.remove_flags(Flags::WHOLE);
    }

    /// Marks a page of an object as the first of a huge page of that. All its frames are in their places, and stay until the
    /// mark is removed.
    pub fn begin_object_whole(&self) {
        self.order_word().store(0, Ordering::Relaxed);
        // Release: a CPU that sees the mark sees the other frames' uses. Acquire: pairs with the release in
        // `end_object_whole`.
        self.flags_word().fetch_or(Flags::WHOLE.0, Ordering::AcqRel);
    }

    /// Whether this is the first frame of a huge page of an object.
    #[inline]
    pub fn is_object_whole(&self) -> bool {
        // Acquire: pairs with the release above.
        is_object_whole(self.flags_word().load(Ordering::Acquire))
    }

    /// Removes the mark, because a frame is about to leave its place. Returns whether it was set.
    pub fn end_object_whole(&self) -> bool {
        // A read-modify-write in any case: it comes before or after the one that sets the mark.
        self.flags_word().fetch_or(0, Ordering::AcqRel);
        let ended = |flags| is_object_whole(flags).then_some(flags & !Flags::WHOLE.0);
        self.flags_word()
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, ended)
            .is_ok()
    }

    /// Counts one more entry that maps a huge page of an object, or with `u32::MAX` one less.
    pub fn add_object_map(&self, entries: u32) {
        self.order_word().fetch_add(entries, Ordering::Relaxed);
    }
}

fn is_object_whole(flags: u32) -> bool {
    Flags(flags).has(Flags::WHOLE.and(Flags::FILE))
}
