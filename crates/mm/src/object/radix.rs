//! The index of a memory object: from the number of a page to its frame, without a lock.
//!
//! It is a radix tree over page numbers of the file, as high as the largest number so far requires. Nodes are
//! added, and stay until the object is freed. A lookup therefore takes no lock, and no read section of its own.
//! Slots of the lowest level hold a frame, one that is being filled or moved, or the place of a swapped page. They change only by
//! compare-and-swap, because faults, reads and truncations meet there.
//!
//! *Writes*: the slot's line, which 8 neighbouring pages of the file share; a node's lines once, when it is
//! installed.

use crate::tune::RADIX_BITS;

use core::ptr::{NonNull, null_mut, without_provenance_mut};

use faultless_frames::NoMemory;
use faultless_paging::{Frame, SwapEntry};
use faultless_sync::atomic::{AtomicPtr, Ordering};

const SLOTS: usize = 1 << RADIX_BITS;

/// The content of a slot of the lowest level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageSlot {
    /// No page: a hole, or not read yet.
    Empty,
    /// A page.
    Page(Frame),
    /// A page that is being read in.
    Filling(Frame),
    /// A page that is being moved from this frame to another one.
    Moving(Frame),
    /// A page that was swapped out.
    Swapped(SwapPlace),
    /// A page that comes back from its swap device into this frame.
    Returning(Frame),
    /// No page; a block of the pool of huge pages is reserved for the pages from here on.
    Reserved,
}

/// A slot of a swap device, of which the object has a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SwapPlace(u64);

impl SwapPlace {
    const DEVICE_BITS: u32 = SwapEntry::DEVICES.next_power_of_two().ilog2();

    /// Returns an entry that names the slot.
    pub(crate) fn entry(self) -> SwapEntry {
        SwapEntry {
            device: (self.0 & ((1 << Self::DEVICE_BITS) - 1)) as u32,
            slot: self.0 >> Self::DEVICE_BITS,
            is_exclusive: false,
            is_soft_dirty: false,
            reports_writes: false,
        }
    }
}

impl From<SwapEntry> for SwapPlace {
    fn from(entry: SwapEntry) -> Self {
        Self(entry.slot << Self::DEVICE_BITS | u64::from(entry.device))
    }
}

const PAGE: usize = 1;
const FILLING: usize = 2;
const MOVING: usize = 3;
const SWAPPED: usize = 4;
const RETURNING: usize = 5;
const RESERVED: usize = 6;
const TAG: usize = 7;
const TAGS: u32 = 3;

impl PageSlot {
    fn raw(self) -> *mut () {
        let tagged = |frame: Frame, tag| without_provenance_mut((frame.0 as usize) << TAGS | tag);
        match self {
            PageSlot::Empty => null_mut(),
            PageSlot::Page(frame) => tagged(frame, PAGE),
            PageSlot::Filling(frame) => tagged(frame, FILLING),
            PageSlot::Moving(frame) => tagged(frame, MOVING),
            PageSlot::Swapped(place) => tagged(Frame(place.0), SWAPPED),
            PageSlot::Returning(frame) => tagged(frame, RETURNING),
            PageSlot::Reserved => without_provenance_mut(RESERVED),
        }
    }

    fn from_raw(raw: *mut ()) -> Self {
        let frame = Frame((raw.addr() >> TAGS) as u64);
        match raw.addr() & TAG {
            PAGE => PageSlot::Page(frame),
            FILLING => PageSlot::Filling(frame),
            MOVING => PageSlot::Moving(frame),
            SWAPPED => PageSlot::Swapped(SwapPlace(frame.0)),
            RETURNING => PageSlot::Returning(frame),
            RESERVED => PageSlot::Reserved,
            _ => PageSlot::Empty,
        }
    }
}

/// A slot: at the lowest level the state of a page of the file, above that a node.
#[repr(transparent)]
pub(crate) struct Slot(AtomicPtr<()>);

impl Slot {
    /// Returns the content. Acquire: pairs with the release that has put a page there, so that its descriptor
    /// and its content are seen.
    #[inline]
    pub(crate) fn load(&self) -> PageSlot {
        PageSlot::from_raw(self.0.load(Ordering::Acquire))
    }

    /// Whether the slot holds this page. For validation, after the caller's own full fence (the claim's).
    /// Partner: the fences in `rmap/truncate.rs` and [`crate::object::moving`], after the page has left its
    /// slot.
    #[inline]
    pub(crate) fn holds(&self, frame: Frame) -> bool {
        self.0.load(Ordering::Relaxed) == PageSlot::Page(frame).raw()
    }

    /// Replaces `from` by `to`. Fails with the present content if that is another one.
    pub(crate) fn replace(&self, from: PageSlot, to: PageSlot) -> Result<(), PageSlot> {
        self.0
            .compare_exchange(from.raw(), to.raw(), Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
            .map_err(PageSlot::from_raw)
    }

    fn node(&self) -> Option<&Node> {
        // SAFETY: above the lowest level there are only nodes, which stay.
        NonNull::new(self.0.load(Ordering::Acquire)).map(|node| unsafe { node.cast().as_ref() })
    }
}

/// An array of slots.
#[repr(C, align(64))]
pub(crate) struct Node {
    slots: [Slot; SLOTS],
}

/// The bits of a root that hold the number of levels.
const HEIGHT: usize = 63;
const _: () = assert!(align_of::<Node>() > HEIGHT);

/// The index.
pub(crate) struct Radix {
    /// A node and the number of levels; null while there is none.
    root: AtomicPtr<()>,
}

/// Allocates and frees nodes.
pub(crate) trait Nodes {
    fn allocate(&self) -> Result<NonNull<u8>, NoMemory>;
    fn free(&self, node: NonNull<Node>);
}

/// Returns the part of a page number that a level and those below it decode.
fn below(height: usize, index: u64) -> u64 {
    let bits = RADIX_BITS * height as u32;
    index & 1u64.checked_shl(bits).map_or(u64::MAX, |end| end - 1)
}

fn number(height: usize, index: u64) -> usize {
    index.checked_shr(RADIX_BITS * height as u32).unwrap_or(0) as usize % SLOTS
}

impl Radix {
    pub(crate) fn new() -> Self {
        Self {
            root: AtomicPtr::new(null_mut()),
        }
    }

    fn root(&self) -> (*mut (), Option<&Node>, usize) {
        let raw = self.root.load(Ordering::Acquire);
        let node = NonNull::new(raw.map_addr(|at| at & !HEIGHT).cast::<Node>());
        // SAFETY: a root stays. Once installed, it is only read and put under another one.
        (
            raw,
            node.map(|node| unsafe { node.as_ref() }),
            raw.addr() & HEIGHT,
        )
    }

    /// Returns the slot of a page, if one was ever needed.
    #[inline]
    pub(crate) fn find(&self, index: u64) -> Option<&Slot> {
        let (_, node, mut height) = self.root();
        let mut node = node?;
        if below(height, index) != index {
            return None;
        }
        loop {
            height -= 1;
            let slot = &node.slots[number(height, index)];
            if height == 0 {
                return Some(slot);
            }
            node = slot.node()?;
        }
    }

    /// Returns the slots of a page and of those behind it in the same node, if there is one.
    pub(crate) fn slots_from(&self, index: u64) -> &[Slot] {
        let (_, node, mut height) = self.root();
        let Some(mut node) = node.filter(|_| below(height, index) == index) else {
            return &[];
        };
        loop {
            height -= 1;
            let at = number(height, index);
            if height == 0 {
                return &node.slots[at..];
            }
            match node.slots[at].node() {
                Some(below) => node = below,
                None => return &[],
            }
        }
    }

    /// Calls `act` with the slots of `pages` in order, and with their numbers. All of them were made.
    pub(crate) fn for_each_slot(
        &self,
        pages: core::ops::Range<u64>,
        mut act: impl FnMut(u64, &Slot),
    ) {
        let mut at = pages.start;
        while at < pages.end {
            let slots = self.slots_from(at);
            if slots.is_empty() {
                debug_assert!(false, "a slot was not made");
                return;
            }
            for slot in slots.iter().take((pages.end - at) as usize) {
                act(at, slot);
                at += 1;
            }
        }
    }

    /// Makes the slots of `pages`.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub(crate) fn make_slots(
        &self,
        pages: core::ops::Range<u64>,
        nodes: &impl Nodes,
    ) -> Result<(), NoMemory> {
        let mut at = pages.start;
        while at < pages.end {
            self.slot(at, nodes)?;
            at += self.slots_from(at).len().max(1) as u64;
        }
        Ok(())
    }

    /// Returns the slot of a page, and makes it if necessary.
    ///
    /// # Errors
    /// [`NoMemory`] when there is no memory for a node.
    pub(crate) fn slot(&self, index: u64, nodes: &impl Nodes) -> Result<&Slot, NoMemory> {
        loop {
            let (raw, node, height) = self.root();
            let Some(mut node) = node.filter(|_| below(height, index) == index) else {
                self.grow(raw, height, nodes)?;
                continue;
            };
            let mut height = height;
            loop {
                height -= 1;
                let slot = &node.slots[number(height, index)];
                if height == 0 {
                    return Ok(slot);
                }
                node = match slot.node() {
                    Some(node) => node,
                    None => {
                        put(&slot.0, null_mut(), 0, null_mut(), nodes)?;
                        match slot.node() {
                            Some(node) => node,
                            None => break,
                        }
                    }
                };
            }
        }
    }

    /// Installs a node above the root.
    fn grow(&self, raw: *mut (), height: usize, nodes: &impl Nodes) -> Result<(), NoMemory> {
        let old = raw.map_addr(|at| at & !HEIGHT);
        put(&self.root, raw, height + 1, old, nodes)
    }

    /// Calls `visit` for every page in `pages` with a slot that is not empty.
    pub(crate) fn for_each(
        &self,
        pages: core::ops::Range<u64>,
        visit: &mut impl FnMut(u64, &Slot),
    ) {
        if let (_, Some(node), height) = self.root() {
            for_each(node, height - 1, 0, &pages, visit);
        }
    }

    /// Returns the first page from `index` on that is in its slot.
    pub(crate) fn next(&self, index: u64) -> Option<u64> {
        let (_, node, height) = self.root();
        next(node?, height - 1, 0, index)
    }

    /// Calls `visit` for every node.
    pub(crate) fn for_each_node(&self, visit: &mut impl FnMut(&Node)) {
        if let (_, Some(node), height) = self.root() {
            for_each_node(node, height - 1, visit);
        }
    }

    /// Frees all nodes. Nothing reads the index any more.
    pub(crate) fn destroy(&self, nodes: &impl Nodes) {
        if let (_, Some(node), height) = self.root() {
            destroy(node, height - 1, nodes);
        }
    }
}

/// Installs a new node in a word that holds `seen`, unless another CPU is faster. The node's first slot holds
/// `first`; the pointer has `tag`.
fn put(
    word: &AtomicPtr<()>,
    seen: *mut (),
    tag: usize,
    first: *mut (),
    nodes: &impl Nodes,
) -> Result<(), NoMemory> {
    let node = nodes.allocate()?.cast::<Node>();
    let slots =
        core::array::from_fn(|i| Slot(AtomicPtr::new(if i == 0 { first } else { null_mut() })));
    // SAFETY: fresh memory of a node's size and alignment.
    unsafe { node.write(Node { slots }) };
    let raw = node.as_ptr().cast::<()>().map_addr(|at| at | tag);
    // Release: a reader that finds the node finds its slots.
    let placed = word.compare_exchange(seen, raw, Ordering::AcqRel, Ordering::Relaxed);
    if placed.is_err() {
        nodes.free(node);
    }
    Ok(())
}

fn for_each(
    node: &Node,
    level: usize,
    base: u64,
    pages: &core::ops::Range<u64>,
    visit: &mut impl FnMut(u64, &Slot),
) {
    let size = 1u64
        .checked_shl(RADIX_BITS * level as u32)
        .unwrap_or(u64::MAX);
    for (i, slot) in node.slots.iter().enumerate() {
        let start = base.saturating_add((i as u64).saturating_mul(size));
        if start >= pages.end || start.saturating_add(size) <= pages.start {
            continue;
        }
        if level == 0 {
            if slot.load() != PageSlot::Empty {
                visit(start, slot);
            }
        } else if let Some(below) = slot.node() {
            for_each(below, level - 1, start, pages, visit);
        }
    }
}

fn next(node: &Node, level: usize, base: u64, from: u64) -> Option<u64> {
    let size = 1u64.checked_shl(RADIX_BITS * level as u32)?;
    let skipped = from.saturating_sub(base) / size;
    let slots = node.slots.iter().enumerate();
    slots
        .skip(skipped.min(SLOTS as u64) as usize)
        .find_map(|(i, slot)| {
            let start = base.checked_add((i as u64).checked_mul(size)?)?;
            match level {
                0 => {
                    let has_page = matches!(
                        slot.load(),
                        PageSlot::Page(_)
                            | PageSlot::Moving(_)
                            | PageSlot::Swapped(_)
                            | PageSlot::Returning(_)
                    );
                    has_page.then_some(start)
                }
                _ => next(slot.node()?, level - 1, start, from),
            }
        })
}

fn for_each_node(node: &Node, level: usize, visit: &mut impl FnMut(&Node)) {
    visit(node);
    if level > 0 {
        for below in node.slots.iter().filter_map(Slot::node) {
            for_each_node(below, level - 1, visit);
        }
    }
}

fn destroy(node: &Node, level: usize, nodes: &impl Nodes) {
    if level > 0 {
        for slot in &node.slots {
            if let Some(below) = slot.node() {
                destroy(below, level - 1, nodes);
            }
        }
    }
    nodes.free(NonNull::from(node));
}
