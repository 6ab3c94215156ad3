//! `MADV_DONTNEED`: pages go, mappings stay.
//!
//! No range is held, so that nobody waits for it however large it is: each entry is claimed, and
//! then it is asked whether its page still belongs to a mapping that allows this (rule R1, as for a
//! fault); many entries are flushed together and released as empty (rule R2). Where a writer is at
//! work, or a fork has yet to copy the table, that range is waited for, and held for one batch.

use faultless_paging::Pages;

use super::madvise::allow;
use crate::errno::Errno;
use crate::machine::Machine;
use crate::space::AddressSpace;
use crate::tree::Content;
use crate::zap::DISCARD_BATCH;

impl<M: Machine> AddressSpace<M> {
    /// Takes away what is mapped of `pages`, if `what` is allowed there; `ENOMEM` if
    /// not all was mapped.
    pub(super) fn dont_need(&self, pages: Pages, what: i32) -> Result<(), Errno> {
        let mut at = pages.start;
        let mut holes = false;
        while let Some((part, attributes)) = self.next_part(at, pages.end) {
            holes |= part.start != at;
            at = part.end;
            let Some(attributes) = attributes else {
                // Somebody's munmap is still at it.
                holes = true;
                continue;
            };
            allow(&attributes, what)?;
            // Where there are no tables it may have gone further.
            at = self.discard_allowed(part, what).min(part.end);
            if at == part.start {
                let first = Pages::new(at, part.end.min(at + DISCARD_BATCH));
                let held = self.over_mapped(first, what, |part| {
                    self.discard(part);
                    Ok(())
                });
                match held {
                    Ok(()) => {}
                    // By now.
                    Err(Errno::ENOMEM) => holes = true,
                    Err(error) => return Err(error),
                }
                at = first.end;
            }
        }
        match holes || at < pages.end {
            true => Err(Errno::ENOMEM),
            false => Ok(()),
        }
    }

    /// Takes away pages from the start of `pages`, as far as each belongs to a live mapping that
    /// allows it. The page to go on from.
    fn discard_allowed(&self, pages: Pages, what: i32) -> u64 {
        self.discard_valid(pages, &|_| true, &|page, _| {
            // SAFETY: inside the section in which entries are claimed.
            let is_allowed = match unsafe { self.tree.find(page).word.content() } {
                Content::Live(mapping) => allow(mapping.attributes(), what).is_ok(),
                _ => false,
            };
            is_allowed && !self.is_frozen(page)
        })
    }
}
