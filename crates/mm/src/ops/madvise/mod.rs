//! `madvise`: what a program says about pages that it has.
//!
//! Mapping by mapping, as Linux does: what one of them does not allow is an error at
//! once, and what came before it is done; a hole is an error when all else is done.
//!
//! Advice about a mapping's future becomes attributes of it
//! ([`crate::ops::madvise::flags`]). The others change no mapping, and faults beside them go
//! on: `MADV_DONTNEED` ([`crate::ops::madvise::dont_need`]), `MADV_FREE` ([`crate::reclaim::lazyfree`]) and guards
//! ([`crate::fault::kinds::guard`]) work on entries, `MADV_POPULATE_*` are faults like all others.
//! What is about swap, huge pages and merging of equal pages is accepted as Linux
//! accepts it, and nothing comes of it yet.

mod dont_need;
mod flags;
mod remove;

use faultless_paging::{Access, PAGE_SIZE, Page, Pages};
use faultless_trace::Kind;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::fault::{Outcome, SegvCode};
use crate::reclaim::lazyfree::mark_lazyfree;
use crate::space::AddressSpace;
use crate::tree::Run;
use crate::tree::mapping::{Attributes, Locked};

/// `MADV_*` advice that is looked at.
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

/// Whether there is such advice.
fn is_known(what: i32) -> bool {
    matches!(
        what,
        advice::NORMAL..=advice::DONTNEED
            | advice::FREE..=advice::COLLAPSE
            | advice::HWPOISON..=advice::GUARD_REMOVE
    )
}

/// Whether a mapping allows what the advice is about, as Linux answers.
pub(crate) fn allow(attributes: &Attributes, what: i32) -> Result<(), Errno> {
    // Of sealed anonymous memory that cannot be written nothing may be taken away.
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
    // What is locked stays in memory.
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
    // A device's pages are no memory that could be given back or kept, and all of it stays special.
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
    match what {
        // There is no file to take anything out of.
        advice::REMOVE if is_anonymous => Err(Errno::EINVAL),
        advice::FREE | advice::WIPEONFORK if !is_anonymous => Err(Errno::EINVAL),
        // What may go at any time is for nobody else.
        advice::KEEPONFORK | advice::DODUMP if attributes.flags.droppable => Err(Errno::EINVAL),
        // As where the hardware has no huge pages.
        advice::COLLAPSE => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Acts on advice about the pages of a byte range.
    ///
    /// # Errors
    /// `EINVAL` for unknown advice, a range that is not aligned or wraps, or a mapping that
    /// the advice is not for; `EPERM` for what would take away from a sealed mapping, and
    /// for damage to memory on purpose; `ENOMEM` when the range has holes (what is mapped
    /// is done all the same) or there is no table for a guard. POPULATE: `EINVAL` where the
    /// mapping does not allow the access, `EFAULT` at a guard, `ENOMEM` at a hole or when
    /// memory is short.
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
        match what {
            // Whoever runs programs here may not break the machine's memory.
            advice::HWPOISON | advice::SOFT_OFFLINE => Err(Errno::EPERM),
            advice::DONTNEED | advice::DONTNEED_LOCKED => self.dont_need(pages, what),
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
            // Nothing to read ahead; no swap; or not allowed at all.
            advice::WILLNEED | advice::COLD | advice::PAGEOUT | advice::COLLAPSE => {
                self.over_mapped(pages, what, |_| Ok(()))
            }
            _ => self.change_flags(pages, what),
        }
    }

    /// Calls `act` for what is mapped of `pages`, if `what` is allowed there; `ENOMEM` if
    /// not all was mapped. Mappings stay as they are meanwhile.
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

    /// The first pages from `page` on that are not empty, and what is true of them if they are
    /// mapped.
    pub(crate) fn next_part(&self, page: u64, limit: u64) -> Option<(Run, Option<Attributes>)> {
        let _section = self.memory().enter();
        let run = self.tree().next_until(page, limit)?;
        // SAFETY: read in this section.
        let mapping = unsafe { run.word.mapping() };
        Some((run, mapping.map(|mapping| *mapping.attributes())))
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
            if !allowed || attributes.flags.device {
                return Err(Errno::EINVAL);
            }
            self.machine().poll();
            self.populates_on(page)?;
            if self
                .entry(address)
                .is_some_and(|entry| Self::FORMAT.permits(entry, access))
            {
                continue;
            }
            match self.fault(address, access) {
                Outcome::Resolved => {}
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
