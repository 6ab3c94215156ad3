//! What a slot of the tree holds, as one tagged pointer.
//!
//! The word is also the state that faults validate. For the page it covers it
//! goes from a mapping (*live*) through the same mapping marked *changing* to
//! whatever comes next; a fault that found it live publishes nothing unless it
//! finds the very same word after its claim.
//!
//! A mapping with a store behind it has the bit that a note has, and a pointer, which
//! a note has not.
//!
//! A note is smaller than any address. One says who zaps there, so that who is done clears his
//! own notes and no others.
//!
//! A mapping's word also says what the mapping allows, which never changes, so
//! that a fault need not look at the mapping: among many mappings that would be
//! one more line that no cache holds.

use crate::tree::mapping::Mapping;
use crate::tree::node::Node;
use crate::tree::split::Split;
use faultless_paging::Protection;

/// The most writers that can zap at once, each with a mark of its own.
pub(crate) const WRITERS: usize = 8000;

const CHILD: usize = 1;
const CHANGING: usize = 2;
const NOTE: usize = 4;
/// What no mapping has together.
const SPLIT: usize = CHILD | CHANGING;
/// What tells the contents apart.
const TAGS: usize = 7;
/// What a mapping allows.
const READ: usize = 8;
const WRITE: usize = 16;
const EXECUTE: usize = 32;
/// Of a mapping: what it took the place of is still being taken away.
const REPLACING: usize = 64;
/// Everything but the pointer.
const BITS: usize = 63;
/// Everything but the pointer to a mapping.
const MAPPING_BITS: usize = 127;
/// No object is at a lower address.
const LOWEST: usize = 1 << 19;
/// Where a note has its number.
const NUMBER: u32 = BITS.count_ones();
const _: () = assert!(align_of::<Mapping>() > MAPPING_BITS);
const _: () = assert!(align_of::<Node>() > BITS && align_of::<Split>() > BITS);

/// A slot's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotValue(*mut ());

/// A slot's content, told apart.
pub enum SlotState<'s> {
    /// No mapping.
    Empty,
    /// No mapping any more, but its pages are still being taken away: nothing
    /// new may be mapped here yet.
    Zapping,
    /// No mapping yet; somebody will put one here, or will not.
    Reserved,
    /// The node this slot was in is no longer part of the tree: look again from the root.
    Gone,
    /// A mapping.
    Live(&'s Mapping),
    /// A mapping at which a writer is at work, here, or where it has taken another's place whose
    /// pages have not gone yet.
    Changing(&'s Mapping),
    /// A node with a slot for each part of this slot's span.
    Child(&'s Node),
    /// A slot for each of two parts of this slot's span.
    Split(&'s Split),
}

impl SlotValue {
    /// No mapping.
    pub const EMPTY: SlotValue = SlotValue(core::ptr::null_mut());
    /// See [`SlotState::Reserved`].
    pub const RESERVED: SlotValue = SlotValue::note(WRITERS);
    /// What a search finds in the place of an arena that it does not look into (`crate::tree::pinned`); in
    /// no slot.
    pub const ARENA: SlotValue = SlotValue::note(WRITERS + 1);
    /// See [`SlotState::Gone`].
    pub const RETIRED: SlotValue = SlotValue(core::ptr::without_provenance_mut(NOTE | CHANGING));

    const fn note(number: usize) -> Self {
        assert!(number << NUMBER < LOWEST);
        Self(core::ptr::without_provenance_mut(NOTE | number << NUMBER))
    }

    /// See [`SlotState::Zapping`]; `writer` is the number of who zaps (`crate::lock::RangeWriteGuard`).
    pub const fn zapping(writer: usize) -> Self {
        assert!(writer < WRITERS);
        Self::note(writer)
    }

    /// Whether somebody zaps here.
    pub fn is_zapping(self) -> bool {
        self.0.addr() & TAGS == NOTE && !self.has_pointer() && self.0.addr() >> NUMBER < WRITERS
    }

    pub(super) fn from_raw(raw: *mut ()) -> Self {
        Self(raw)
    }

    pub(super) fn raw(self) -> *mut () {
        self.0
    }

    /// A live mapping.
    pub fn live(mapping: &Mapping) -> Self {
        let allowed = mapping.protection();
        let bits = [
            (allowed.read, READ),
            (allowed.write, WRITE),
            (allowed.execute, EXECUTE),
        ];
        let bits = bits
            .iter()
            .map(|&(set, bit)| usize::from(set) * bit)
            .sum::<usize>();
        let kind = if mapping.attributes().backed.is_some() {
            NOTE
        } else {
            0
        };
        let pointer = core::ptr::from_ref(mapping).cast_mut().cast::<()>();
        Self(pointer.map_addr(|a| a | bits | kind))
    }

    /// What the mapping allows, live or changing. Of other content: nothing.
    #[inline]
    pub fn protection(self) -> Protection {
        let has = |bit| self.0.addr() & bit != 0;
        Protection {
            read: has(READ),
            write: has(WRITE),
            execute: has(EXECUTE),
        }
    }

    /// Whether the mapping that this leads to has a store.
    #[inline]
    pub fn is_backed(self) -> bool {
        self.0.addr() & NOTE != 0 && self.has_pointer()
    }

    #[inline]
    fn has_pointer(self) -> bool {
        self.0.addr() >= LOWEST
    }

    /// The same mapping, with a writer at work; a note is what it is.
    pub fn changing(self) -> Self {
        match self.has_pointer() {
            true => Self(self.0.map_addr(|a| a | CHANGING)),
            false => self,
        }
    }

    /// The same mapping, where what it took the place of is still being taken away. Like one at
    /// which a writer is at work, but beside other writers: see `crate::lock::pending`.
    pub fn replacing(self) -> Self {
        Self(self.0.map_addr(|a| a | REPLACING))
    }

    /// The same mapping, in whose place nothing is any more.
    pub fn replaced(self) -> Self {
        Self(self.0.map_addr(|a| a & !REPLACING))
    }

    /// Whether a mapping's pages are those of what it took the place of.
    pub fn is_replacing(self) -> bool {
        self.0.addr() & (CHILD | REPLACING) == REPLACING && self.has_pointer()
    }

    /// The same mapping, live, if a writer was at work; else what it is.
    pub fn settled(self) -> Self {
        if self.0.addr() & (CHILD | CHANGING) == CHANGING && self.has_pointer() {
            Self(self.0.map_addr(|a| a & !CHANGING))
        } else {
            self
        }
    }

    pub(super) fn child(node: core::ptr::NonNull<Node>) -> Self {
        Self(node.as_ptr().cast::<()>().map_addr(|a| a | CHILD))
    }

    pub(super) fn split(split: core::ptr::NonNull<Split>) -> Self {
        Self(split.as_ptr().cast::<()>().map_addr(|a| a | SPLIT))
    }

    /// Whether it is a mapping at which no writer is at work.
    pub fn is_live(self) -> bool {
        self.has_pointer() && !self.is_child() && self.0.addr() & (CHANGING | REPLACING) == 0
    }

    /// Whether there is a mapping, in whatever state.
    pub fn is_mapped(self) -> bool {
        self.has_pointer() && !self.is_child()
    }

    /// Whether there is no mapping and nothing else.
    pub fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    /// Whether it leads to other slots: those of a child, or of a split.
    pub(super) fn is_child(self) -> bool {
        self.0.addr() & CHILD != 0
    }

    fn pointer<T>(self, bits: usize) -> *const T {
        self.0.map_addr(|a| a & !bits).cast_const().cast()
    }

    /// Tells the content apart.
    ///
    /// # Safety
    /// The word was read from the tree in the read section `'s`, or by a
    /// writer that keeps its content from being retired.
    #[inline]
    pub unsafe fn content<'s>(self) -> SlotState<'s> {
        let kind = self.0.addr() & TAGS;
        if kind & CHILD != 0 {
            // SAFETY: what it leads to is retired only after this slot was overwritten.
            return unsafe {
                match kind & SPLIT == SPLIT {
                    false => SlotState::Child(&*self.pointer(BITS)),
                    true => SlotState::Split(&*self.pointer(BITS)),
                }
            };
        }
        if !self.has_pointer() {
            return match kind {
                0 => SlotState::Empty,
                NOTE if self.is_zapping() => SlotState::Zapping,
                NOTE => SlotState::Reserved,
                _ => SlotState::Gone,
            };
        }
        // SAFETY: what else has a pointer leads to a mapping, which is retired only
        // after its last slot was overwritten, or counts as retired after that (`Links::Going`).
        let mapping = unsafe { &*self.pointer(MAPPING_BITS) };
        match self.0.addr() & (CHANGING | REPLACING) {
            0 => SlotState::Live(mapping),
            _ => SlotState::Changing(mapping),
        }
    }

    /// The mapping, live or changing.
    ///
    /// # Safety
    /// As for [`SlotValue::content`].
    pub unsafe fn mapping<'s>(self) -> Option<&'s Mapping> {
        // SAFETY: passed on to the caller.
        match unsafe { self.content() } {
            SlotState::Live(mapping) | SlotState::Changing(mapping) => Some(mapping),
            _ => None,
        }
    }
}
