//! `madvise`: what has an effect on anonymous memory so far.
//!
//! Advice about a mapping's future becomes attributes of it
//! ([`super::madvise_flags`]). `MADV_DONTNEED` changes no mapping: entries stay claimed until they are
//! flushed, so that faults beside it and before it go on. `MADV_POPULATE_*` are
//! faults like all others.

use faultless_paging::{Access, PAGE_SIZE, Page, Pages};
use faultless_trace::Kind;

use crate::errno::Errno;
use crate::fault::{Outcome, SegvCode};
use crate::machine::Machine;
use crate::space::AddressSpace;

/// `MADV_*` advice that is looked at.
#[allow(missing_docs)]
pub mod advice {
    pub const NORMAL: i32 = 0;
    pub const RANDOM: i32 = 1;
    pub const SEQUENTIAL: i32 = 2;
    pub const WILLNEED: i32 = 3;
    pub const DONTNEED: i32 = 4;
    pub const REMOVE: i32 = 9;
    pub const DONTFORK: i32 = 10;
    pub const DOFORK: i32 = 11;
    pub const DONTDUMP: i32 = 16;
    pub const DODUMP: i32 = 17;
    pub const WIPEONFORK: i32 = 18;
    pub const KEEPONFORK: i32 = 19;
    pub const POPULATE_READ: i32 = 22;
    pub const POPULATE_WRITE: i32 = 23;
    pub const DONTNEED_LOCKED: i32 = 24;
}

impl<M: Machine> AddressSpace<M> {
    /// Acts on advice about the pages of a byte range.
    ///
    /// # Errors
    /// `EINVAL` for unknown advice or a range that is not aligned or wraps;
    /// `ENOMEM` when the range has holes (what is mapped is done all the same);
    /// POPULATE: `EINVAL` where the mapping does not allow the access,
    /// `ENOMEM` at a hole or when memory is short.
    pub fn madvise(&self, address: u64, length: u64, what: i32) -> Result<(), Errno> {
        let start = self.trace_start();
        let result = self.act_on_advice(address, length, what);
        self.trace_result(Kind::Madvise, start, (address, length), result)
    }

    fn act_on_advice(&self, address: u64, length: u64, what: i32) -> Result<(), Errno> {
        let known = matches!(what, advice::NORMAL..=advice::DONTNEED)
            || matches!(what, advice::REMOVE..=advice::DOFORK)
            || matches!(what, advice::DONTDUMP..=advice::KEEPONFORK)
            || matches!(what, advice::POPULATE_READ..=advice::DONTNEED_LOCKED);
        if !known || !address.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        let rounded = length
            .checked_next_multiple_of(PAGE_SIZE)
            .ok_or(Errno::EINVAL)?;
        let end = address.checked_add(rounded).ok_or(Errno::EINVAL)?;
        if rounded == 0 {
            return Ok(());
        }
        let pages = Pages::of_bytes(address..end);
        match what {
            advice::DONTNEED | advice::DONTNEED_LOCKED => self.dont_need(pages),
            advice::POPULATE_READ => self.populate(pages, Access::Read),
            advice::POPULATE_WRITE => self.populate(pages, Access::Write),
            advice::REMOVE => self.remove(pages),
            // Nothing to read ahead in anonymous memory.
            advice::WILLNEED => self.hint(pages),
            _ => self.change_flags(pages, what),
        }
    }

    fn dont_need(&self, pages: Pages) -> Result<(), Errno> {
        let _hold = self.hold_range(pages);
        self.over_mapped(pages, |part| self.discard(part))
    }

    fn hint(&self, pages: Pages) -> Result<(), Errno> {
        let _hold = self.hold_range(pages);
        self.over_mapped(pages, |_| {})
    }

    /// Calls `act` for what is mapped of `pages`; `ENOMEM` if not all was.
    fn over_mapped(&self, pages: Pages, act: impl Fn(Pages)) -> Result<(), Errno> {
        let mut at = pages.start;
        let mut holes = false;
        while at < pages.end {
            let next = {
                let _section = self.memory.enter();
                self.tree
                    .next(at)
                    .filter(|run| run.pages.start < pages.end)
                    .map(|run| {
                        // SAFETY: read in this section.
                        (
                            run.pages.and(pages),
                            unsafe { run.word.mapping() }.is_some(),
                        )
                    })
            };
            let Some((part, mapped)) = next else { break };
            holes |= part.start != at || !mapped;
            if mapped {
                act(part);
            }
            at = part.end;
        }
        if holes || at < pages.end {
            Err(Errno::ENOMEM)
        } else {
            Ok(())
        }
    }

    /// Faults in page by page, up to the first that cannot be. Pages that are
    /// there already are no faults, and no stack grows for it.
    fn populate(&self, pages: Pages, access: Access) -> Result<(), Errno> {
        for page in pages.start..pages.end {
            let address = Page(page).address();
            let attributes = self.lookup(address).ok_or(Errno::ENOMEM)?;
            let allowed = match access {
                // Linux wants the mapping itself to be readable.
                Access::Read => attributes.protection.read,
                _ => attributes.protection.allows(access),
            };
            if !allowed {
                return Err(Errno::EINVAL);
            }
            self.machine().poll();
            if self
                .entry(address)
                .is_some_and(|entry| Self::FORMAT.permits(entry, access))
            {
                continue;
            }
            match self.fault(address, access) {
                Outcome::Resolved => {}
                Outcome::Bus => return Err(Errno::EFAULT),
                Outcome::Segv(SegvCode::MapErr) | Outcome::OutOfMemory => {
                    return Err(Errno::ENOMEM);
                }
                Outcome::Segv(SegvCode::AccErr) => return Err(Errno::EINVAL),
            }
        }
        Ok(())
    }
}
