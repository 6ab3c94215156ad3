//! Follows what the host changes: called before each flush of a host that has guests.
//!
//! Every entry of the guest that shows one of the changed pages is compared with the host's entry as it is now, and zapped
//! or lowered if that shows less. The range that the host reports may be larger than what it has changed, so this also
//! leaves alone what is still right.
//!
//! The host's entries were changed by read-modify-writes. A fault of the guest that has seen one of them as it was before
//! has claimed its own entry before this look, which waits for the claim ([`faultless_mm::HostPages`]).
//!
//! *Writes*: entries; bits of the log for pages that are zapped.
//!
//! *Models*: loom `guests.rs`.

use faultless_mm::HostPages;
use faultless_paging::{Page, Pages};
use faultless_sync::{Mutant, mutant};

use crate::format::SecondLevel;
use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::log::bitmap;

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Zaps or lowers what the host's entries no longer show. The caller is in a section.
    pub(crate) fn follow(&self, host: &HostPages<'_, M>, pages: Pages) {
        let mut has_changed = false;
        let _lock = self.mmu_lock();
        for slot in self.slots_now().iter() {
            let part = slot.guest_of(pages);
            if part.is_empty() {
                continue;
            }
            self.for_each(slot, part, &mut |entry, page| {
                let shown = || host.get_told(Page(slot.host_of(page)));
                let is_logged = slot.logs();
                let before = self.change(entry, |value| {
                    let new = match shown() {
                        Some(shown)
                            if shown.is_used && shown.frame == Self::FORMAT.frame(value) =>
                        {
                            if shown.takes_stores || !M::SecondLevel::may_write(value) {
                                return None;
                            }
                            M::SecondLevel::lowered(value)
                        }
                        _ => 0,
                    };
                    // The bit first: no moment at which the page is not dirty.
                    if is_logged
                        && !mutant(Mutant::ZappedNotLogged)
                        && M::SecondLevel::is_written(value)
                    {
                        bitmap::set(self.machine(), slot, page - slot.pages.start);
                    }
                    Some(new)
                });
                has_changed |= before.is_some();
                if before.is_some() && !M::SecondLevel::has_page(entry.load()) {
                    self.unmapped(slot, page);
                }
            });
        }
        if has_changed {
            self.flush();
        }
    }
}
