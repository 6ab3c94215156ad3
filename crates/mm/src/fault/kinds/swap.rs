//! Faults on pages that were swapped out.
//!
//! * The page is read with nothing held (step 5), into a frame of the fault's own. The fault holds a use of the
//!   slot, and has seen that the entry still names it, from before the read until its entry is published. So the
//!   slot is not used again meanwhile, and an entry that still names it after the claim still means the page
//!   that was read (rule R4).
//! * The frame belongs to this entry alone: another entry that names the slot is read into another frame. The
//!   page is therefore exclusive, and is mapped writable where its mapping is, on a read too. The write that
//!   follows a read takes no fault, copies nothing and flushes nothing (*exclusive mark through swap*; Linux
//!   since 5.19).
//! * Where stores have to be noticed, because of soft-dirty bits, a read maps the page read-only.
//! * A page that the device did not take is in a frame already. Where this entry alone names the slot, the frame itself
//!   is published: a fault without free memory needs no second one.
//! * The slot is freed with its last use, so that a page in memory has no copy on a device, and counts as
//!   written.
//!
//! *Writes*: the entry, the frame and its descriptor, and the slot.
//!
//! *Models*: loom `fault/swap.rs`.

use faultless_frames::FrameSource;
use faultless_paging::{Access, Page};
use faultless_trace::How;

use crate::base::machine::Machine;
use crate::fault::state::FaultState;
use crate::fault::trace::TraceSink;
use crate::fault::{Outcome, PteRef};
use crate::space::AddressSpace;
use crate::table::retry::Retry;
use crate::table::rss::RssKind;

impl<M: Machine> AddressSpace<M> {
    /// Resolves an access to a page that was swapped out.
    #[inline(never)]
    pub(crate) fn swap_in<N: TraceSink>(
        &self,
        at: &PteRef<'_>,
        page: Page,
        access: Access,
        prepared: &mut FaultState<M, N>,
    ) -> Result<Outcome, Retry> {
        let swapped = &self.tables().swap_of(at.value).ok_or(Retry::EntryClaimed)?;
        let Some(frame) = prepared.swapped_page(swapped, (at.entry, at.value))? else {
            at.validate()?;
            return Ok(Outcome::Bus);
        };
        let descriptor = self.machine().frames().descriptor(frame);
        let protection = at.vma.protection();
        let format = Self::FORMAT;
        let is_new = at
            .vma
            .attributes()
            .is_some_and(|attributes| self.is_new(attributes));
        let counts_written = access == Access::Write || swapped.is_soft_dirty || is_new;
        let reports = swapped.reports_writes
            && at
                .vma
                .attributes()
                .is_some_and(|attributes| attributes.handler.reports_writes());
        self.tables().transact(at, || {
            if prepared.is_kept() {
                prepared.take_kept()?;
            }
            // Unreachable until the entry is published (rule R7).
            descriptor.set_anonymous(self.number(), page.0);
            let leaf = format.leaf_of(frame, protection.write && counts_written, protection, true);
            let leaf = match counts_written {
                true => format.written(leaf),
                false => format.watched(leaf),
            };
            let leaf = match reports {
                true => format.reported(leaf),
                false => leaf,
            };
            let leaf = self.allowed::<N>(leaf, at);
            Ok(match prepared.is_ahead {
                true if self.machine().marks_loads() => format.unloaded(leaf),
                true => format.unused(leaf),
                false => leaf,
            })
        })?;
        prepared.swapped_page_used();
        let cpu = self.machine().cpu();
        self.tables().rss.came(cpu, RssKind::Anonymous);
        // The use of the entry that was replaced.
        self.tables().drop_swap(swapped);
        prepared.trail.ends(How::Major);
        prepared.count_wait();
        if reports && access == Access::Write {
            // The next try reports the store.
            return Err(Retry::EntryClaimed);
        }
        Ok(Outcome::Resolved)
    }
}
