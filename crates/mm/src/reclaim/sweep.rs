//! The sweep: finds pages of anonymous memory that were not used for some time (a clock, or second-chance,
//! algorithm).
//!
//! There are no lists of pages. One hand goes over the page tables of one address space after the other, and then
//! begins again. A round of it is a *generation*. Where it finds the accessed bit set, it clears the bit: the page
//! was used in this generation. Where it finds the bit clear, the page has not been used for a whole generation, and
//! is a candidate ([`crate::reclaim::page_out`]). A new page has the bit set. So a fault writes nothing for reclaim,
//! and reclaim holds no page: no decision about sharing has to know of it (docs/decisions/0018).
//!
//! * The accessed bit is cleared without a flush, as Linux does on x86. A use through a TLB may then leave the bit
//!   clear, and the page is taken too early; it comes back. The flush of page-out does not rely on the bit: an entry
//!   without bit and owner may be in any TLB ([`faultless_paging::holders`], rule R8).
//! * Locked mappings are passed over. In a droppable mapping, and where a page is clean (`MADV_FREE`), the page is
//!   discarded, and not written.
//! * The hand is in each space, and written under the lock of the list of spaces. That lock keeps spaces from
//!   ending. It is held while one batch is taken, and not while it is written. No fault waits for it.
//! * Each claim is validated: the page's mapping is live, allows it, and no fork has yet to copy the table (rule R1).
//!
//! *Writes*: accessed bits; what page-out writes; the list of spaces.
//!
//! *Models*: loom `reclaim/sweep.rs`.

use faultless_frames::Flags;
use faultless_paging::{ENTRIES, Entry, Frame, Pages};

const _: () = assert!(SWEPT_AT_ONCE.is_power_of_two() && SWEPT_AT_ONCE <= ENTRIES as u64);
use faultless_sync::reclaim::Section;
use faultless_sync::{Mutant, mutant};

use crate::base::machine::Machine;
use crate::reclaim::page_out::{Batch, Candidate, Candidates, take};
use crate::reclaim::shared::take_anonymous;
use crate::rmap::anon::AllSpaces;
use crate::rmap::claims::Places;
use crate::space::AddressSpace;
use crate::table::huge::huge_span;
use crate::table::pages::Span;
use crate::tree::SlotState;
use crate::tree::mapping::Attributes;
use crate::tune::{SWEPT_AT_ONCE, SWEPT_PARTS};

/// Which pages a sweep takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Those that were not used for a generation.
    Unused,
    /// Also those in use that one entry shows, because all are in use: before memory counts as exhausted.
    Any,
}

/// What a part of the sweep has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Swept {
    /// Pages of anonymous memory.
    pub(crate) seen: u64,
    /// Those that were used, and count as unused from now on.
    pub(crate) aged: u64,
    /// Address spaces whose end it has reached.
    pub(crate) ends: u64,
    /// A page that several entries show, and that has not been used through this one: the page's number here.
    shared: Option<(Frame, u64)>,
    /// Whether every entry of a family of spaces was looked at, for one page.
    has_searched: bool,
}

impl Swept {
    /// Nothing was seen, up to the end of all.
    pub(crate) fn ending(ends: u64) -> Self {
        Self {
            ends,
            ..Self::default()
        }
    }
}

/// Takes the page out that the sweep has met and several entries show, if none has used it.
fn take_shared<M: Machine>(
    spaces: &AllSpaces<'_, M>,
    places: Option<&Places<M>>,
    batch: &mut Batch,
    swept: &mut Swept,
) {
    let Some((shared, places)) = swept.shared.take().zip(places) else {
        return;
    };
    // A search takes time by all memory of the family: one in a step is enough.
    let may_search = !swept.has_searched;
    let interrupts = places.memory().machine().interrupts_off();
    let (is_taken, has_searched) = take_anonymous(spaces, places, shared, may_search, batch);
    places.memory().machine().interrupts_restore(interrupts);
    swept.has_searched |= has_searched;
    swept.aged += u64::from(!is_taken);
}

/// Moves the hand on until the batch is full, some tables were seen, or the end of each space was reached once. The batch
/// has room.
pub(crate) fn sweep<M: Machine>(
    spaces: &mut AllSpaces<'_, M>,
    places: Option<&Places<M>>,
    batch: &mut Batch,
    taken: Taken,
) -> Swept {
    let (mut swept, count) = (Swept::default(), spaces.count());
    for _ in 0..SWEPT_PARTS {
        if batch.room() <= 1 || swept.ends == count {
            break;
        }
        let Some(space) = spaces.first() else {
            break;
        };
        let end = space.all_pages().end;
        let at = space.tables().first_table(space.place.hand.get(), end);
        let is_done = at >= end;
        let next = match is_done {
            true => 0,
            false => sweep_part(space, at, batch, taken, &mut swept),
        };
        space.place.hand.set(next);
        take_shared(spaces, places, batch, &mut swept);
        if is_done {
            swept.ends += 1;
            spaces.rotate();
        }
    }
    swept
}

/// Sweeps a part of one table, from the page `at`. Returns the page from which to continue.
fn sweep_part<M: Machine>(
    space: &AddressSpace<M>,
    at: u64,
    batch: &mut Batch,
    taken: Taken,
    swept: &mut Swept,
) -> u64 {
    let end = (at | (SWEPT_AT_ONCE - 1)) + 1;
    let section = space.memory().enter();
    let mut candidates = Candidates::new(batch.room() - 1);
    let mut next = end;
    space
        .tables()
        .visit_spans(Pages::new(at, end), &mut |span| {
            let (table, part) = match span {
                Span::Table(table, part) => (table, part),
                Span::Huge(entry, value, part) => {
                    next = huge_span(part.start).end;
                    return keeps_huge(
                        space,
                        (entry, value),
                        part.start,
                        (taken, &mut *swept),
                        &section,
                    );
                }
            };
            // Where a huge page was split just now.
            next = next.min(end);
            space.tables().for_each_in(table, part, &mut |entry, page| {
                // One place is left for a page that is shared, which ends the part.
                if candidates.is_full() || swept.shared.is_some() {
                    next = next.min(page);
                    return;
                }
                // SAFETY: the section keeps the table.
                let entry = unsafe { &*core::ptr::from_ref(entry) };
                if let Some(candidate) = age(space, entry, page, (taken, &mut *swept), &section) {
                    candidates.push(candidate);
                }
            });
            true
        });
    let may_leave = |candidate: &Candidate<'_>| {
        may_leave(space, candidate, &section)
            && space
                .tables()
                .is_in_place(candidate.entry(), candidate.page(), &section)
            || mutant(Mutant::SweptWithoutValidation)
    };
    take(space, &mut candidates, batch, may_leave);
    next
}

/// Whether a huge page stays whole: it was used, and counts as unused from now on; or none of its pages may leave. Else it
/// is split, and its pages are looked at one by one.
fn keeps_huge<M: Machine>(
    space: &AddressSpace<M>,
    (entry, value): (&Entry, u64),
    page: u64,
    (taken, swept): (Taken, &mut Swept),
    section: &Section<'_>,
) -> bool {
    let format = AddressSpace::<M>::FORMAT;
    if taken == Taken::Unused && format.is_used(value) {
        // By compare-and-swap: hardware may set bits at any moment (rule R8), and another operation split the page.
        if entry.replace(value, format.unused(value)).is_ok() {
            swept.seen += ENTRIES as u64;
            swept.aged += ENTRIES as u64;
        }
        return true;
    }
    if space.tables().is_huge_zero(value) {
        return true;
    }
    let has_swap = space.memory().has_swap();
    let may_leave = |attributes: &Attributes| {
        !attributes.flags.stays() && (has_swap || attributes.flags.droppable)
    };
    !attributes(space, page, section).is_some_and(may_leave)
}

/// Clears the accessed bit of an entry. Returns the entry as a candidate if the bit was clear, or any page is taken.
fn age<'s, M: Machine>(
    space: &AddressSpace<M>,
    entry: &'s Entry,
    page: u64,
    (taken, swept): (Taken, &mut Swept),
    section: &Section<'_>,
) -> Option<Candidate<'s>> {
    let format = AddressSpace::<M>::FORMAT;
    let value = entry.load();
    if !format.is_present(value) || format.is_claimed(value) {
        return None;
    }
    let counted = space.tables().counted(value);
    let counted = counted.filter(|page| page.flags().has(Flags::ANONYMOUS))?;
    swept.seen += 1;
    // What a look for idle pages has seen of it.
    let was_used = counted.take_page_young() && taken == Taken::Unused;
    if format.is_used(value) && taken == Taken::Unused {
        // By compare-and-swap: hardware may set bits at any moment (rule R8).
        swept.aged += u64::from(entry.replace(value, format.unused(value)).is_ok());
        space.tables().age_guests(page, true);
        return None;
    }
    let is_used_by_guests = taken == Taken::Unused && space.tables().age_guests(page, true);
    if was_used || is_used_by_guests {
        swept.aged += 1;
        return None;
    }
    if !counted.is_sole_use() {
        // All its entries are asked then. A pinned page stays.
        let is_shared = counted.pins() == 0;
        swept.shared = is_shared.then(|| (format.frame(value), page));
        return None;
    }
    let candidate = |is_discarded| Candidate::new(entry, page, value, is_discarded);
    [true, false]
        .into_iter()
        .map(candidate)
        .find(|candidate| may_leave(space, candidate, section))
}

/// Whether the mapping at a candidate's page lets it leave.
fn may_leave<M: Machine>(
    space: &AddressSpace<M>,
    candidate: &Candidate<'_>,
    section: &Section<'_>,
) -> bool {
    attributes(space, candidate.page(), section).is_some_and(|attributes| {
        let may_be_discarded =
            || attributes.flags.droppable || !AddressSpace::<M>::FORMAT.is_dirty(candidate.value());
        !attributes.flags.stays() && (!candidate.is_discarded() || may_be_discarded())
    })
}

/// Returns the attributes of the mapping at a page, if it is live.
pub(crate) fn attributes<'s, M: Machine>(
    space: &'s AddressSpace<M>,
    page: u64,
    _section: &'s Section<'_>,
) -> Option<&'s Attributes> {
    let word = space.tree().find(page).word;
    // SAFETY: inside the section.
    match unsafe { word.content() } {
        SlotState::Live(mapping) => Some(mapping.attributes()),
        _ => None,
    }
}
