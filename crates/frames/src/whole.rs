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
}
