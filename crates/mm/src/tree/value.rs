//! What a slot of the tree holds, as one tagged pointer.
//!
//! * The slot value is also the state that faults validate. For a page it changes from a mapping (*live*) to
//!   the same mapping marked *changing*, and then to its successor. A fault that found it live publishes only
//!   if it finds the same value after its claim.
//! * A *mark* leads to no object, and is smaller than any address. A zapping mark holds the number of its
//!   writer, so that the end of a zap clears only its own marks.
//! * A mapping with a memory object or a userfaultfd has the bit that marks have (`NOTE`), and a pointer, which
//!   a mark has not.
//! * A mapping's slot value also holds its protection, which never changes. A fault therefore does not read
//!   the mapping: among many mappings that would be one more cache miss.

use crate::tree::mapping::Mapping;
use crate::tree::node::Node;
use crate::tree::split::Split;
use faultless_paging::Protection;

/// The most writers that can zap at the same time, each with a mark of its own.
pub(crate) const WRITERS: usize = 8000;

const CHILD: usize = 1;
const CHANGING: usize = 2;
const NOTE: usize = 4;
/// A combination of bits that no mapping has.
const SPLIT: usize = CHILD | CHANGING;
/// The bits that tell the kinds of content apart.
const TAGS: usize = 7;
/// The protection of a mapping.
const READ: usize = 8;
const WRITE: usize = 16;
const EXECUTE: usize = 32;
/// Of a mapping: the pages of the mapping that it replaced are still being zapped.
const REPLACING: usize = 64;
/// All bits but the pointer.
const BITS: usize = 63;
/// All bits but the pointer to a mapping.
const MAPPING_BITS: usize = 127;
/// No object is at a lower address.
const LOWEST: usize = 1 << 19;
/// The position of a mark's number.
const NUMBER: u32 = BITS.count_ones();
const _: () = assert!(align_of::<Mapping>() > MAPPING_BITS);
const _: () = assert!(align_of::<Node>() > BITS && align_of::<Split>() > BITS);

/// A slot value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotValue(*mut ());

/// A slot value, decoded.
pub enum SlotState<'s> {
    /// No mapping.
    Empty,
    /// No mapping, but the old pages are still being zapped: nothing new may be mapped here yet.
    Zapping,
    /// No mapping; a writer reserves the pages for a mapping that it may put here.
    Reserved,
    /// The node of this slot has left the tree: search again from the root.
    Gone,
    /// A mapping.
    Live(&'s Mapping),
    /// A mapping that a writer is changing here, or that has replaced a mapping with pages still to be
    /// zapped.
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
    /// What a search reports for a shard that it does not enter (`crate::tree::pinned`). No slot holds it.
    pub const SHARD: SlotValue = SlotValue::note(WRITERS + 1);
    /// See [`SlotState::Gone`].
    pub const RETIRED: SlotValue = SlotValue(core::ptr::without_provenance_mut(NOTE | CHANGING));

    const fn note(number: usize) -> Self {
        assert!(number << NUMBER < LOWEST);
        Self(core::ptr::without_provenance_mut(NOTE | number << NUMBER))
    }

    /// See [`SlotState::Zapping`]; `writer` is the number of the zap's writer
    /// (`crate::lock::RangeWriteGuard`).
    pub const fn zapping(writer: usize) -> Self {
        assert!(writer < WRITERS);
        Self::note(writer)
    }

    /// Whether a zap is in progress here.
    pub fn is_zapping(self) -> bool {
        self.0.addr() & TAGS == NOTE && !self.has_pointer() && self.0.addr() >> NUMBER < WRITERS
    }

    pub(super) fn from_raw(raw: *mut ()) -> Self {
        Self(raw)
    }

    pub(super) fn raw(self) -> *mut () {
        self.0
    }

    /// Returns the value of a live mapping.
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
        let attributes = mapping.attributes();
        let kind = match attributes.backed.is_some() || !attributes.handler.is_none() {
            true => NOTE,
            false => 0,
        };
        let pointer = core::ptr::from_ref(mapping).cast_mut().cast::<()>();
        Self(pointer.map_addr(|a| a | bits | kind))
    }

    /// Returns what the mapping allows, live or changing. Other content allows nothing.
    #[inline]
    pub fn protection(self) -> Protection {
        let has = |bit| self.0.addr() & bit != 0;
        Protection {
            read: has(READ),
            write: has(WRITE),
            execute: has(EXECUTE),
        }
    }

    /// Whether the value leads to a mapping with a memory object or a userfaultfd: a fault on a missing page has
    /// to read the mapping.
    #[inline]
    pub fn is_special(self) -> bool {
        self.0.addr() & NOTE != 0 && self.has_pointer()
    }

    #[inline]
    fn has_pointer(self) -> bool {
        self.0.addr() >= LOWEST
    }

    /// Returns the mapping's value marked as changing; a mark stays as it is.
    pub fn changing(self) -> Self {
        match self.has_pointer() {
            true => Self(self.0.map_addr(|a| a | CHANGING)),
            false => self,
        }
    }

    /// Returns the mapping's value marked as replacing: the old pages are still being zapped. Faults treat it
    /// like *changing*, but other writers may be at work beside it: see `crate::lock::pending`.
    pub fn replacing(self) -> Self {
        Self(self.0.map_addr(|a| a | REPLACING))
    }

    /// Returns the mapping's value without the replacing mark.
    pub fn replaced(self) -> Self {
        Self(self.0.map_addr(|a| a & !REPLACING))
    }

    /// Whether the mapping is marked as replacing: the old pages may still be in the entries.
    pub fn is_replacing(self) -> bool {
        self.0.addr() & (CHILD | REPLACING) == REPLACING && self.has_pointer()
    }

    /// Returns the live value of a changing mapping; any other value stays as it is.
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

    /// Whether it is a mapping that no writer is changing.
    pub fn is_live(self) -> bool {
        self.has_pointer() && !self.is_child() && self.0.addr() & (CHANGING | REPLACING) == 0
    }

    /// Whether it is a mapping, in any state.
    pub fn is_mapped(self) -> bool {
        self.has_pointer() && !self.is_child()
    }

    /// Whether it holds neither a mapping nor anything else.
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

    /// Decodes the slot value.
    ///
    /// # Safety
    /// The value was read from the tree in the read section `'s`, or by a writer that keeps its content from
    /// being retired.
    #[inline]
    pub unsafe fn content<'s>(self) -> SlotState<'s> {
        let kind = self.0.addr() & TAGS;
        if kind & CHILD != 0 {
            // SAFETY: a child or a split is retired only after this slot was overwritten.
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
        // SAFETY: any other pointer leads to a mapping. It is retired only after its last slot was
        // overwritten, or counts as retired after that (`Grace::Going`).
        let mapping = unsafe { &*self.pointer(MAPPING_BITS) };
        match self.0.addr() & (CHANGING | REPLACING) {
            0 => SlotState::Live(mapping),
            _ => SlotState::Changing(mapping),
        }
    }

    /// Returns the child.
    ///
    /// # Safety
    /// As for [`SlotValue::content`].
    #[inline]
    pub(super) unsafe fn child_node<'s>(self) -> Option<&'s Node> {
        // SAFETY: as there.
        (self.0.addr() & SPLIT == CHILD).then(|| unsafe { &*self.pointer(BITS) })
    }

    /// Returns the mapping, live or changing.
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
