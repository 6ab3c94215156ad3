//! `mprotect`: changes protections mapping by mapping, as Linux does: an error in the middle leaves the
//! mappings before it changed.
//!
//! For each run: cut, show the successor as *changing*, change the entries. Then, for all runs that were
//! changed, also after an error: flush once if anything was lowered, and show the successors as live. Pages
//! that are exclusive to the space, or belong to a shared mapping, become writable immediately. The zero page
//! stays read-only and is replaced on write.

use faultless_paging::{ENTRIES, Entry, Format, Gather, PAGE_SIZE, Pages, Protection};
use faultless_sync::Backoff;
use faultless_trace::{Counter, Kind};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::lock::RangeWriteGuard;
use crate::ops::populate::Parts;
use crate::ops::protection;
use crate::space::AddressSpace;
use crate::table::pages::Span;
use crate::tree::mapping::Attributes;
use crate::tree::{Run, SlotValue};

const PROT_SEM: u32 = 8;
const PROT_GROWSDOWN: u32 = 0x0100_0000;
const PROT_GROWSUP: u32 = 0x0200_0000;

impl<M: Machine> AddressSpace<M> {
    /// Changes which accesses the pages of a byte range allow.
    ///
    /// # Errors
    /// `EINVAL` for an address that is not aligned or unknown bits; `ENOMEM` for a range that wraps or has
    /// holes, when memory is short, or at a limit; `EACCES` for writing to a shared mapping of a file that was
    /// not opened for writing; `EPERM` for a sealed mapping. What comes before the error in the range is
    /// changed.
    pub fn mprotect(&self, address: u64, length: u64, prot: u32) -> Result<(), Errno> {
        let start = self.trace_start();
        let result = self.change_protection(address, length, prot);
        self.trace_result(Kind::Mprotect, start, (address, length), result)
    }

    fn change_protection(&self, address: u64, length: u64, prot: u32) -> Result<(), Errno> {
        let grows = prot & (PROT_GROWSDOWN | PROT_GROWSUP);
        let prot = prot & !(PROT_GROWSDOWN | PROT_GROWSUP);
        if grows == PROT_GROWSDOWN | PROT_GROWSUP || !address.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        if length == 0 {
            return Ok(());
        }
        // Linux lets the length wrap to 0 and then rejects the range.
        let length = length
            .checked_next_multiple_of(PAGE_SIZE)
            .ok_or(Errno::ENOMEM)?;
        let end = address.checked_add(length).ok_or(Errno::ENOMEM)?;
        if prot
            & !(crate::ops::PROT_READ | crate::ops::PROT_WRITE | crate::ops::PROT_EXEC | PROT_SEM)
            != 0
        {
            return Err(Errno::EINVAL);
        }
        if address >= self.layout().end {
            return Err(Errno::ENOMEM);
        }
        let mut pages = Pages::of_bytes(address..end);
        self.check_pool(pages)?;
        let lock = match grows {
            // The mapping may begin anywhere.
            PROT_GROWSDOWN => self.maps.lock_everything(),
            _ => self.maps.lock_range(pages),
        };
        if grows == PROT_GROWSUP {
            // No mapping grows up here.
            let mapped = !self
                .maps
                .is_unmapped(Pages::new(pages.start, pages.start + 1));
            return Err(if mapped { Errno::EINVAL } else { Errno::ENOMEM });
        }
        if grows == PROT_GROWSDOWN {
            pages = self.extend_to_growing(pages)?;
        }
        let mut to_populate = Parts::NONE;
        let result = self.protect(&lock, pages, protection(prot), &mut to_populate);
        drop(lock);
        for pages in to_populate.iter() {
            self.populate_locked(pages);
        }
        self.memory().count(Counter::Mprotect);
        result
    }

    /// `PROT_GROWSDOWN`: extends the range to the start of the mapping, which has to grow down.
    fn extend_to_growing(&self, pages: Pages) -> Result<Pages, Errno> {
        let run = self.maps.mapped_run(pages).ok_or(Errno::ENOMEM)?;
        // SAFETY: the caller holds every range.
        let mapping = unsafe { run.word.mapping() }.ok_or(Errno::EINVAL)?;
        if !mapping.grows_down() {
            return Err(Errno::EINVAL);
        }
        let _section = self.memory().enter();
        let mut start = run.pages.start;
        while let Some(below) = start
            .checked_sub(1)
            .and_then(|page| self.tree().slot_of(page))
        {
            // SAFETY: read in this section.
            let same = unsafe { below.word.mapping() }
                .is_some_and(|neighbour| neighbour.attributes() == mapping.attributes());
            if !same {
                break;
            }
            start = below.pages.start;
        }
        Ok(Pages::new(start, pages.end))
    }

    /// Changes what is mapped from the start of `pages`, up to the first hole. `to_populate` receives what is
    /// locked and private, and becomes writable.
    fn protect(
        &self,
        lock: &RangeWriteGuard<'_, M>,
        pages: Pages,
        to: Protection,
        to_populate: &mut Parts,
    ) -> Result<(), Errno> {
        let mut gather = Gather::new();
        let mut at = pages.start;
        let mut last = None;
        let result = loop {
            if at >= pages.end {
                break Ok(());
            }
            let Some(run) = self
                .maps
                .run_in(at, pages.end)
                .filter(|r| r.pages.start == at)
            else {
                break Err(Errno::ENOMEM);
            };
            // Only private pages: shared ones are there already, or were discarded on purpose.
            let copies =
                to.write && !run.word.protection().write && self.is_locked_private(run.word);
            match self.protect_run(lock, run, to, last, &mut gather) {
                Ok(successor) => last = Some(successor),
                Err(error) => break Err(error),
            }
            if copies {
                to_populate.add(run.pages);
            }
            at = run.pages.end;
        };
        self.tables().flush(&mut gather);
        self.maps
            .publish_live(&mut lock.edit(), Pages::new(pages.start, at));
        result
    }

    /// Changes one run. Returns the live slot value that its pages will have. `before` is that of the preceding
    /// run.
    fn protect_run(
        &self,
        lock: &RangeWriteGuard<'_, M>,
        run: Run,
        to: Protection,
        before: Option<SlotValue>,
        gather: &mut Gather,
    ) -> Result<SlotValue, Errno> {
        // SAFETY: the range keeps mappings from being retired.
        let Some(mapping) = (unsafe { run.word.mapping() }) else {
            return Err(Errno::ENOMEM);
        };
        let from = *mapping.attributes();
        if from.flags.sealed {
            return Err(Errno::EPERM);
        }
        if from.protection == to {
            return Ok(run.word);
        }
        if to.write && from.flags.never_written {
            return Err(Errno::EACCES);
        }
        let attributes = Attributes {
            protection: to,
            ..from
        };
        let count = run.pages.len();
        if !from.commits() && !self.maps.may_commit(&attributes, count) {
            return Err(Errno::ENOMEM);
        }
        lock.lock_out_readers(run.pages);
        let mut edit = lock.edit();
        let room = self.maps.room(&edit);
        if to.write && !room.has(&attributes, count) && room.has(&from, count) {
            return Err(Errno::ENOMEM);
        }
        self.maps.check_split(&edit, run.pages, Some(&attributes))?;
        edit.cut(run.pages)?;
        let lent = before.filter(|word| {
            // SAFETY: as above.
            unsafe { word.mapping() }.is_some_and(|m| self.are_one(m.attributes(), &attributes))
        });
        let successor = match lent {
            Some(word) => {
                self.link_word_again(word);
                word
            }
            None => self.word_for(&edit, run.pages, attributes)?,
        };
        self.maps
            .set_range(&mut edit, run.pages, successor.changing());
        drop(edit);
        lock.validation_fence();
        self.protect_entries(run.pages, &attributes, gather);
        Ok(successor)
    }

    /// Changes the entries of `pages`, of which the mapping is changing. Gathers those for which a TLB could
    /// hold more than they now allow.
    fn protect_entries(&self, pages: Pages, attributes: &Attributes, gather: &mut Gather) {
        let format = Self::FORMAT;
        let (to, shared) = (attributes.protection, attributes.flags.shared);
        let is_new = self.is_new(attributes);
        let section = self.memory().enter();
        let mut protect = |entry: &Entry, page: u64| {
            let mut backoff = Backoff::new();
            loop {
                let value = entry.load();
                if format.is_claimed(value) {
                    // The claim of an earlier fault: it sees the change and withdraws, or it publishes.
                    backoff.turn(self.machine());
                    continue;
                }
                if !format.has_page(value) {
                    // Its fault asks the mapping.
                    return;
                }
                let own = to.write && (shared || self.tables().is_exclusive(value));
                // Where every page counts as written, stores need not be detected.
                let from = if own && is_new {
                    value | format.soft_dirty
                } else {
                    value
                };
                let new = format.with_protection(from, to, own);
                if shared {
                    self.tables().mark_dirty(new);
                }
                if entry.replace(value, new).is_ok() {
                    let lowered = is_lowered(format, value, new);
                    if lowered {
                        self.tables().gather(value, page, gather);
                    }
                    return;
                }
            }
        };
        let mut huge = Gather::new();
        self.tables().visit_spans(pages, &mut |span| match span {
            Span::Table(table, part) => {
                self.tables().for_each_in(table, part, &mut protect);
                true
            }
            Span::Huge(entry, value, part) => {
                part.len() == ENTRIES as u64
                    && self.protect_huge((entry, value), part.start, attributes, &mut huge)
            }
        });
        gather.join(huge);
        drop(section);
    }

    /// The same for the entry of a huge page, which holds `value`. Returns whether it was changed as a whole.
    fn protect_huge(
        &self,
        (entry, value): (&Entry, u64),
        page: u64,
        attributes: &Attributes,
        gather: &mut Gather,
    ) -> bool {
        let (format, to) = (Self::FORMAT, attributes.protection);
        if to.is_none() {
            // Pages that no access may reach are hidden one by one.
            return false;
        }
        // A private mapping shows a huge page of an object read-only, and never owns it.
        let shared = attributes.flags.shared;
        let own = to.write && (shared || self.tables().is_exclusive_huge(value));
        let from = match own && self.is_new(attributes) {
            true => value | format.soft_dirty,
            false => value,
        };
        let new = format.huge(format.with_protection(from, to, own));
        if shared && own {
            self.tables().mark_huge_dirty(format.frame(value));
        }
        if entry.replace(value, new).is_err() {
            // Hardware has set a bit, or the entry is claimed: look again.
            return false;
        }
        if is_lowered(format, value, new) {
            self.tables().gather_huge(value, page, gather);
        }
        true
    }
}

/// Whether an entry that held `old` allows less than that now.
fn is_lowered(format: Format, old: u64, new: u64) -> bool {
    format.is_present(old)
        && (!format.is_present(new)
            || (format.is_writable(old) && !format.is_writable(new))
            || (format.is_executable(old) && !format.is_executable(new))
            || (format.is_execute_only(new) && !format.is_execute_only(old)))
}
