//! Huge pages that `fork` shares, by one entry in each space.
//!
//! * The child gets the parent's entry, write-protected, and a table of its own is deposited for its split. The frames stop
//!   being exclusive; how many entries map the whole is counted with the first ([`faultless_frames::whole`]).
//! * A space that splits its entry counts itself at each frame, and then leaves the whole. Each small page is shared from
//!   then on like any other, and copied by the next write to it.
//! * The last space of the whole takes it over by its next write, if no frame has another use: it is raised as a whole, and
//!   nothing is copied.
//! * As many tables are deposited as entries map the whole, each with another frame. Spaces add and take them
//!   concurrently, by compare-and-swap.
//! * A space leaves the whole after its flush, as it gives up a small page.
//!
//! *Writes*: the frames' descriptors.
//!
//! *Models*: loom `ops/fork_huge.rs`.

use faultless_frames::{Descriptor, Flags, FrameSource};
use faultless_paging::{Frame, Value};
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::{Mutant, mutant};

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::table::Tables;
use crate::table::huge::{frames_of, huge_span};
use crate::tune::DEPOSIT_LOOKS;

/// Leaves a table with the frames of a huge page. Whether there was room.
pub(crate) fn deposit<S: FrameSource>(source: &S, first: Frame, table: Frame) -> bool {
    let mut parts = source.descriptors_of_huge(first).iter();
    parts.any(|part| part.swap_deposit(0, table.0 + 1))
}

/// Takes one of the tables. There is one for each entry that maps the whole, but others are taken and left meanwhile, so that
/// a look at all places may miss it.
pub(crate) fn take_deposit<S: FrameSource>(source: &S, first: Frame) -> Option<Frame> {
    let parts = source.descriptors_of_huge(first);
    let take = |part: &Descriptor| {
        let table = part.deposit();
        (table != 0 && part.swap_deposit(table, 0)).then(|| Frame(table - 1))
    };
    (0..DEPOSIT_LOOKS).find_map(|_| parts.iter().find_map(take))
}

/// Returns the entries that map an anonymous page's frame, alone or as a part of a huge page.
pub(crate) fn mappings_of<S: FrameSource>(source: &S, frame: Frame) -> u32 {
    let count = source.descriptor(frame).map_count();
    match whole_of(source, frame) {
        // All that map the whole are one use.
        Some(head) => (count + head.whole_maps()).saturating_sub(1),
        None => count,
    }
}

/// Returns the first frame's descriptor of the huge page that has a frame, if entries map that as a whole.
pub(crate) fn whole_of<S: FrameSource>(source: &S, frame: Frame) -> Option<&Descriptor> {
    let head = source.find(Frame(huge_span(frame.0).start))?;
    head.is_whole().then_some(head)
}

/// Makes frames a huge page of the space `owner`, at the pages from `base` on, which one entry will map, with a table for its
/// split (rule R7).
pub(crate) fn begin_huge<S: FrameSource>(
    source: &S,
    (first, table): (Frame, Frame),
    (owner, base): (u64, u64),
) {
    let parts = source.descriptors_of_huge(first);
    for (part, page) in parts.iter().zip(base..) {
        part.set_anonymous(owner, page);
        // An earlier use may have left something.
        part.set_deposit(0);
    }
    if let Some(head) = parts.first() {
        head.set_deposit(table.0 + 1);
        head.begin_whole();
    }
}

/// Counts that one entry less maps a huge page of an object as a whole. It still counts at each of the frames.
pub(crate) fn leave_whole<M: Machine>(memory: &Memory<M>, first: Frame) {
    let head = memory.machine().frames().descriptor(first);
    head.add_object_map(u32::MAX);
    memory.count_object_huge_maps(first, 1u64.wrapping_neg());
}

/// Leaves a huge page whose entry was taken out, after the flush, and frees the pages that nothing else uses.
pub(crate) fn release_huge<M: Machine>(memory: &Memory<M>, first: Frame) {
    let (source, cpu) = (memory.machine().frames(), memory.machine().cpu());
    let parts = source.descriptors_of_huge(first);
    let Some(head) = parts.first() else {
        return;
    };
    if head.flags().has(Flags::FILE) {
        for (part, frame) in parts.iter().zip(frames_of(first)) {
            if part.unmap() {
                source.free(cpu, frame);
            }
        }
        return;
    }
    if !head.is_shared_whole() {
        parts.iter().for_each(Descriptor::unmap_sole);
        return source.free_huge(cpu, first);
    }
    if !head.drop_whole() {
        return;
    }
    let is_whole = parts.iter().all(Descriptor::is_sole_use);
    for (part, frame) in parts.iter().zip(frames_of(first)) {
        if part.unmap() && !is_whole {
            source.free(cpu, frame);
        }
    }
    if is_whole {
        source.free_huge(cpu, first);
    }
}

impl<M: Machine> Tables<M> {
    /// Returns the descriptors of the frames of a huge page.
    fn parts(&self, first: Frame) -> &'static [Descriptor] {
        self.machine().frames().descriptors_of_huge(first)
    }

    /// Iterates over the tables that are deposited with the huge page of an entry, for an audit.
    pub(crate) fn deposited(&self, value: Value) -> impl Iterator<Item = Frame> {
        let first = Self::FORMAT.frame(value);
        let parts = match self.is_huge_zero(value) {
            true => &[],
            false => self.parts(first),
        };
        let values = parts.iter().map(Descriptor::deposit);
        values
            .filter(|&value| value != 0)
            .map(|value| Frame(value - 1))
    }

    /// Takes the table that is deposited for a split, or for the end of the huge page.
    pub(crate) fn take_deposit(&self, first: Frame) -> Option<Frame> {
        take_deposit(self.machine().frames(), first)
    }

    /// Marks a huge page of an object as one that its pager cannot fill again. Before an entry lets stores through.
    pub(crate) fn mark_huge_dirty(&self, first: Frame) {
        self.parts(first).iter().for_each(Descriptor::mark_dirty);
    }

    /// Whether a huge page is this space's alone, so that it may be made writable.
    pub(crate) fn is_exclusive_huge(&self, value: Value) -> bool {
        let head = self.parts(Self::FORMAT.frame(value)).first();
        !self.is_huge_zero(value) && head.is_some_and(|head| head.flags().has(Flags::EXCLUSIVE))
    }

    /// Shares a huge page of this space, write-protected, with a child, for which `table` is deposited. Returns whether there
    /// was room for that. Other spaces may leave the huge page meanwhile; this one does not.
    pub(crate) fn share_huge(&self, first: Frame, table: Frame, family: u64) -> bool {
        if !deposit(self.machine().frames(), first, table) {
            return false;
        }
        let parts = self.parts(first);
        let Some(head) = parts.first() else {
            return false;
        };
        if head.flags().has(Flags::EXCLUSIVE) {
            parts.iter().for_each(|part| part.share_part(family));
        }
        head.share_whole();
        true
    }

    /// Counts this space at each frame of a huge page that makes way for a table, and leaves the whole. Under the claim of
    /// the entry.
    pub(crate) fn count_parts(&self, first: Frame) {
        let parts = self.parts(first);
        let Some(head) = parts.first() else {
            return;
        };
        if head.whole_maps() == 1 {
            // The use of the whole becomes that of this space.
            return head.end_whole();
        }
        let counts_late = mutant(Mutant::PartsCountedTooLate);
        let count = || parts.iter().for_each(Descriptor::add_mapping);
        if !counts_late {
            count();
        }
        let is_last = head.drop_whole();
        if counts_late {
            count();
        }
        if is_last {
            // The others have left meanwhile.
            for part in parts {
                let is_last = part.unmap();
                debug_assert!(!is_last, "this space maps it");
            }
        }
    }

    /// Takes a huge page over, for a write, if no other space uses any of its frames. Returns whether it is this space's
    /// alone now. Under the claim of its entry, after its validation: no fork of this space is in progress.
    pub(crate) fn take_over_huge(&self, value: Value, owner: u64, base: u64) -> bool {
        // A fork that had shared it before the validation cleared the marks before it showed the mapping live. Pairs with
        // the release of that store.
        fence(Ordering::Acquire);
        if self.is_exclusive_huge(value) {
            return true;
        }
        let parts = self.parts(Self::FORMAT.frame(value));
        let Some(head) = parts.first() else {
            return false;
        };
        let is_alone = head.whole_maps() == 1 && parts.iter().all(Descriptor::is_sole_use)
            || mutant(Mutant::HugeTakenOverUnasked);
        if is_alone {
            for (part, page) in parts.iter().zip(base..) {
                part.set_anonymous(owner, page);
            }
            head.begin_whole();
        }
        is_alone
    }
}
