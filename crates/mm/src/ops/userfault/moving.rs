//! Moves pages of private anonymous memory into empty entries of registered mappings (`UFFDIO_MOVE`).
//!
//! Both entries are claimed, without a wait, and both mappings validated. The page leaves the source, which is
//! flushed, before the target shows it: no CPU ever reaches it by both addresses. A page that other spaces may map,
//! or that is pinned, stays. A swapped page moves with its slot.
//!
//! *Writes*: both entries, and the page's descriptor.

use faultless_paging::{Page, Pages, Pte, Walk};
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::reclaim::Section;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::userfault::Userfault;
use crate::fault::PteRef;
use crate::lock::vma::{Mode, VmaRef};
use crate::ops::userfault::Filled;
use crate::space::AddressSpace;
use crate::table::retry::{Blocker, Retry};
use crate::table::txn::PteTxn;
use crate::tree::mapping::{Attributes, Locked};

/// Whether pages may move between two mappings.
fn allows<M: Machine>(by: &Userfault<M>, from: &Attributes, to: &Attributes) -> bool {
    let is_anonymous = |of: &Attributes| of.backed.is_none() && !of.flags.shared;
    from.protection == to.protection
        && from.protection.write
        && (from.flags.locked == Locked::No) == (to.flags.locked == Locked::No)
        && to.handler.is_with(by)
        && is_anonymous(from)
        && is_anonymous(to)
}

impl<M: Machine> AddressSpace<M> {
    /// Moves the pages from `from` on to `pages`. `skips`: pages that are missing are passed over.
    ///
    /// # Errors
    /// In the result: `EINVAL` for mappings between which pages do not move; `ENOENT` where nothing is mapped, or a
    /// page is missing; `EEXIST` where a page is in the way; `EBUSY` for a page that is shared or pinned; `EFAULT`
    /// for what is no page; `EAGAIN` beside a change that waits for an event to be read; `ENOMEM`.
    pub fn userfault_move(
        &self,
        by: &Userfault<M>,
        pages: Pages,
        from: u64,
        skips: bool,
    ) -> Filled {
        let source = Pages::new(from, from + pages.len());
        let begin = || {
            let of = |pages: Pages| self.one_mapping(pages);
            let (to, from) = (of(pages)?, of(source)?);
            match allows(by, &from, &to) {
                true => Ok(()),
                false => Err(Errno::EINVAL),
            }
        };
        if let Err(error) = begin() {
            return Filled {
                pages: 0,
                error: Some(error),
            };
        }
        self.fill_each(by, pages, &|_| Ok(()), &mut |page, tables| {
            let from = Page(page - pages.start + from);
            self.put(Page(page), tables, &mut |at, of, section| {
                self.move_page(at, (by, of), (from, Page(page)), skips, section)
            })
        })
    }

    /// Returns the attributes of `pages`, if they are one mapping to a program.
    ///
    /// # Errors
    /// `ENOENT` where nothing is mapped at their start, `EINVAL` where it ends before them.
    fn one_mapping(&self, pages: Pages) -> Result<Attributes, Errno> {
        let (part, first) = self
            .maps
            .mapped_in(pages.start, pages.end)
            .filter(|(part, _)| part.start == pages.start)
            .ok_or(Errno::ENOENT)?;
        let mut at = part.end;
        while at < pages.end {
            match self.maps.mapped_in(at, pages.end) {
                Some((part, of)) if part.start == at && of == first => at = part.end,
                _ => return Err(Errno::EINVAL),
            }
        }
        Ok(first)
    }

    /// Moves the page `from` to the entry `at` of the page `to`.
    fn move_page(
        &self,
        at: &PteRef<'_>,
        (by, of): (&Userfault<M>, &Attributes),
        (from, to): (Page, Page),
        skips: bool,
        section: &Section<'_>,
    ) -> Result<Result<(), Errno>, Retry> {
        if at.value != 0 {
            return Ok(Err(Errno::EEXIST));
        }
        let Some(vma) = VmaRef::find(&self.maps, from, Mode::Locked, section)? else {
            return Ok(Err(Errno::ENOENT));
        };
        let source_of = vma.attributes().ok_or(Retry::MappingChanged)?;
        if !allows(by, source_of, of) {
            return Ok(Err(Errno::EINVAL));
        }
        let missing = Ok(match skips {
            true => Ok(()),
            false => Err(Errno::ENOENT),
        });
        let (entry, value, link) = match self.tables().descend(from, section) {
            Walk::Leaf { entry, value, link } => (entry, value, link),
            Walk::Missing { .. } => return missing,
            Walk::Busy | Walk::Huge { .. } => return Err(Retry::TableChanged),
        };
        if link.is_frozen() {
            return Err(Retry::Wait(Blocker::Fork));
        }
        let source = PteRef {
            entry,
            value,
            link,
            vma: &vma,
        };
        let format = Self::FORMAT;
        match format.decode(value, 0) {
            Pte::Empty => return missing,
            Pte::Claimed => return Err(Retry::EntryClaimed),
            Pte::Swap(swapped) if !swapped.is_exclusive => return Ok(Err(Errno::EBUSY)),
            Pte::Swap(_) => {}
            Pte::Page(frame) | Pte::Hidden(frame) => {
                if !self.tables().is_zero_page(frame) && !self.may_move(value) {
                    return Ok(Err(Errno::EBUSY));
                }
            }
            _ => return Ok(Err(Errno::EFAULT)),
        }
        let txn = PteTxn::begin(self.machine());
        let target = txn.claim(at.entry, at.value, || at.validate())?;
        let claimed = txn.claim(entry, value, || source.validate())?;
        // Sees what a fork that had copied the table has done to the page (`fault/kinds/cow.rs`).
        fence(Ordering::Acquire);
        let protection = at.vma.protection();
        let moved = if !format.has_page(value) {
            (value | format.soft_dirty) & !format.reports_writes
        } else if self.tables().is_zero_page(format.frame(value)) {
            self.tables().flush_page(from, value);
            let zero = format.leaf_of(format.frame(value), false, protection, false);
            self.tables().with_tlb_owner(zero)
        } else {
            if !self.may_move(value) {
                return Err(Retry::PageChanged);
            }
            self.tables().flush_page(from, value);
            if let Some(descriptor) = self.tables().counted(value) {
                descriptor.move_to(to.0);
            }
            let leaf = format.leaf_of(format.frame(value), true, protection, true);
            self.tables().with_tlb_owner(leaf)
        };
        target.publish(moved);
        claimed.publish(0);
        Ok(Ok(()))
    }

    /// Whether the page of an entry belongs to this entry alone, and is not pinned.
    fn may_move(&self, value: u64) -> bool {
        self.tables().is_exclusive(value)
            && self
                .tables()
                .counted(value)
                .is_some_and(|page| page.is_sole_use())
    }
}
