//! `madvise`: advice of a program about its pages.
//!
//! Advice is applied mapping by mapping, as on Linux. A mapping that does not allow it ends the call with an
//! error, and the mappings before it are done. A hole is an error after everything else is done.
//!
//! Advice about a mapping's future becomes attributes of it ([`crate::ops::madvise::flags`]). Other advice
//! changes no mapping, and faults continue beside it. `MADV_DONTNEED` ([`crate::ops::madvise::dont_need`]),
//! `MADV_FREE` ([`crate::reclaim::lazyfree`]) and guards ([`crate::fault::kinds::guard`]) work on entries;
//! `MADV_POPULATE_*` are ordinary faults. `MADV_PAGEOUT` and `MADV_WILLNEED` swap pages out
//! and back, and `MADV_COLD` makes them count as unused. `MADV_COLLAPSE` makes huge pages
//! ([`crate::ops::madvise::collapse`]). Advice about merging of equal pages is accepted as on Linux, and has no effect yet.

mod cold;
mod collapse;
mod dont_need;
mod flags;
mod page_out;
mod remove;
mod will_need;

use faultless_paging::{Access, PAGE_SIZE, Page, Pages};
use faultless_trace::Kind;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::fault::{Outcome, SegvCode};
use crate::reclaim::lazyfree::mark_lazyfree;
use crate::space::AddressSpace;
use crate::tree::Run;
use crate::tree::mapping::{Attributes, Huge, Locked};

/// The `MADV_*` advice that is known.
#[allow(missing_docs)]
pub mod advice {
    pub const NORMAL: i32 = 0;
    pub const RANDOM: i32 = 1;
    pub const SEQUENTIAL: i32 = 2;
    pub const WILLNEED: i32 = 3;
    pub const DONTNEED: i32 = 4;
    pub const FREE: i32 = 8;
    pub const REMOVE: i32 = 9;
    pub const DONTFORK: i32 = 10;
    pub const DOFORK: i32 = 11;
    pub const MERGEABLE: i32 = 12;
    pub const UNMERGEABLE: i32 = 13;
    pub const HUGEPAGE: i32 = 14;
    pub const NOHUGEPAGE: i32 = 15;
    pub const DONTDUMP: i32 = 16;
    pub const DODUMP: i32 = 17;
    pub const WIPEONFORK: i32 = 18;
    pub const KEEPONFORK: i32 = 19;
    pub const COLD: i32 = 20;
    pub const PAGEOUT: i32 = 21;
    pub const POPULATE_READ: i32 = 22;
    pub const POPULATE_WRITE: i32 = 23;
    pub const DONTNEED_LOCKED: i32 = 24;
    pub const COLLAPSE: i32 = 25;
    pub const HWPOISON: i32 = 100;
    pub const SOFT_OFFLINE: i32 = 101;
    pub const GUARD_INSTALL: i32 = 102;
    pub const GUARD_REMOVE: i32 = 103;
}

/// Whether advice is known.
fn is_known(what: i32) -> bool {
    matches!(
        what,
        advice::NORMAL..=advice::DONTNEED
            | advice::FREE..=advice::COLLAPSE
            | advice::HWPOISON..=advice::GUARD_REMOVE
    )
}

/// Checks whether a mapping allows the advice, with Linux's errors.
pub(crate) fn allow(attributes: &Attributes, what: i32) -> Result<(), Errno> {
    // The pages of sealed anonymous memory that cannot be written must stay.
    let takes_away = matches!(
        what,
        advice::FREE
            | advice::DONTNEED
            | advice::DONTNEED_LOCKED
            | advice::REMOVE
            | advice::DONTFORK
            | advice::WIPEONFORK
            | advice::GUARD_INSTALL
    );
    let is_anonymous = attributes.backed.is_none();
    if takes_away && is_anonymous && attributes.flags.sealed && !attributes.protection.write {
        return Err(Errno::EPERM);
    }
    // Locked pages stay in memory.
    let takes_locked = matches!(
        what,
        advice::FREE
            | advice::DONTNEED
            | advice::REMOVE
            | advice::COLD
            | advice::PAGEOUT
            | advice::GUARD_INSTALL
    );
    if takes_locked && attributes.flags.locked != Locked::No {
        return Err(Errno::EINVAL);
    }
    // A device's pages are not memory that could be freed or kept, and its mappings keep a device's attributes.
    let is_for_memory = matches!(
        what,
        advice::DONTNEED
            | advice::DONTNEED_LOCKED
            | advice::FREE
            | advice::COLD
            | advice::PAGEOUT
            | advice::DOFORK
            | advice::DODUMP
            | advice::GUARD_INSTALL
            | advice::GUARD_REMOVE
    );
    if is_for_memory && attributes.flags.device {
        return Err(Errno::EINVAL);
    }
    // As on Linux, pages of the pool are neither reclaimed nor made of small ones.
    let is_for_small = matches!(
        what,
        advice::FREE | advice::COLD | advice::PAGEOUT | advice::GUARD_INSTALL
    );
    if is_for_small && attributes.flags.huge == Huge::Pooled {
        return Err(Errno::EINVAL);
    }
    match what {
        // There is no file to punch a hole into.
        advice::REMOVE if is_anonymous => Err(Errno::EINVAL),
        advice::FREE | advice::WIPEONFORK if !is_anonymous => Err(Errno::EINVAL),
        // A droppable mapping is neither for a child nor for a core dump.
        advice::KEEPONFORK | advice::DODUMP if attributes.flags.droppable => Err(Errno::EINVAL),
        advice::COLLAPSE if !collapse::may_collapse(attributes) => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Applies advice to the pages of a byte range.
    ///
    /// # Errors
    /// `EINVAL` for unknown advice, a range that is not aligned or wraps, or a mapping to which the advice does
    /// not apply. `EPERM` for discarding pages of a sealed mapping, and for damage to memory on purpose.
    /// `ENOMEM` when the range has holes (what is mapped is done all the same) or there is no table for a
    /// guard. POPULATE: `EINVAL` where the mapping does not allow the access, `EFAULT` at a guard, `ENOMEM` at
    /// a hole or when memory is short.
    pub fn madvise(&self, address: u64, length: u64, what: i32) -> Result<(), Errno> {
        let start = self.trace_start();
        let result = self.act_on_advice(address, length, what);
        self.trace_result(Kind::Madvise, start, (address, length), result)
    }

    fn act_on_advice(&self, address: u64, length: u64, what: i32) -> Result<(), Errno> {
        if !is_known(what) || !address.is_multiple_of(PAGE_SIZE) {
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
        if matches!(
            what,
            advice::DONTNEED | advice::DONTNEED_LOCKED | advice::FREE
        ) {
            self.report_discard(pages, what);
        }
        match what {
            // Programs may not damage the machine's memory.
            advice::HWPOISON | advice::SOFT_OFFLINE => Err(Errno::EPERM),
            advice::DONTNEED | advice::DONTNEED_LOCKED => match self.discarded_of_pool(pages)? {
                none if none.is_empty() => Ok(()),
                pages => {
                    self.dont_need(pages, what)?;
                    self.reserve_again(pages);
                    Ok(())
                }
            },
            advice::FREE => self.over_mapped(pages, what, |part| {
                mark_lazyfree(self, part);
                Ok(())
            }),
            advice::GUARD_INSTALL => {
                self.over_mapped(pages, what, |part| self.install_guards(part))
            }
            advice::GUARD_REMOVE => self.over_mapped(pages, what, |part| {
                self.remove_guards(part);
                Ok(())
            }),
            advice::POPULATE_READ => self.populate(pages, Access::Read),
            advice::POPULATE_WRITE => self.populate(pages, Access::Write),
            advice::REMOVE => self.remove(pages),
            advice::PAGEOUT => page_out::page_out(self, pages),
            advice::WILLNEED => {
                let result = self.over_mapped(pages, what, |_| Ok(()));
                if matches!(result, Ok(()) | Err(Errno::ENOMEM)) {
                    self.bring_back(pages);
                }
                result
            }
            advice::COLD => self.over_mapped(pages, what, |part| {
                cold::cool(self, part);
                Ok(())
            }),
            advice::COLLAPSE => self.collapse(pages),
            _ => self.change_flags(pages, what),
        }
    }

    /// Calls `act` for what is mapped of `pages`, if `what` is allowed there. Fails with `ENOMEM` if not all
    /// was mapped. Mappings do not change meanwhile.
    pub(crate) fn over_mapped(
        &self,
        pages: Pages,
        what: i32,
        act: impl Fn(Pages) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let _hold = self.maps.hold_range(pages);
        let mut at = pages.start;
        let mut holes = false;
        while at < pages.end {
            let Some((run, attributes)) = self.next_part(at, pages.end) else {
                break;
            };
            let part = run.pages;
            holes |= part.start != at || attributes.is_none();
            if let Some(attributes) = attributes {
                allow(&attributes, what)?;
                act(part)?;
            }
            at = part.end;
        }
        if holes || at < pages.end {
            Err(Errno::ENOMEM)
        } else {
            Ok(())
        }
    }

    /// Returns the first run from `page` on that is not empty, and its attributes if it is mapped.
    pub(crate) fn next_part(&self, page: u64, limit: u64) -> Option<(Run, Option<Attributes>)> {
        let _section = self.memory().enter();
        let run = self.tree().next_until(page, limit)?;
        // SAFETY: read in this section.
        let mapping = unsafe { run.word.mapping() };
        Some((run, mapping.map(|mapping| *mapping.attributes())))
    }

    /// Faults in page by page, up to the first page for which that fails. Pages that are already there cause no
    /// fault, and no stack grows.
    fn populate(&self, pages: Pages, access: Access) -> Result<(), Errno> {
        let mut page = pages.start;
        while page < pages.end {
            let address = Page(page).address();
            let attributes = self.lookup(address).ok_or(Errno::ENOMEM)?;
            let allowed = match access {
                // Linux requires the mapping itself to be readable.
                Access::Read => attributes.protection.read,
                _ => attributes.protection.allows(access),
            };
            if !allowed || attributes.flags.device {
                return Err(Errno::EINVAL);
            }
            self.machine().poll();
            self.populates_on(page)?;
            // One mapping has all of a huge page.
            if let Some(end) = self.permitted(Page(page), access) {
                page = end;
                continue;
            }
            match self.fault_by_kernel(address, access) {
                Outcome::Resolved => page += 1,
                Outcome::Interrupted => return Err(Errno::EINTR),
                // Linux: memory that has failed is EHWPOISON.
                Outcome::Poisoned => return Err(Errno(133)),
                Outcome::Bus => return Err(Errno::EFAULT),
                Outcome::Segv(SegvCode::MapErr) if self.is_guarded(Page(page)) => {
                    return Err(Errno::EFAULT);
                }
                Outcome::Segv(SegvCode::MapErr) | Outcome::OutOfMemory => {
                    return Err(Errno::ENOMEM);
                }
                Outcome::Segv(SegvCode::AccErr | SegvCode::KeyErr) => return Err(Errno::EINVAL),
            }
        }
        Ok(())
    }
}
