//! `MADV_REMOVE`: punches a hole into the memory object that is mapped there.
//!
//! The objects, and the places in them, are found with the range held. The holes are punched afterwards with
//! nothing held, because that visits every mapping of those pages in any address space.

use faultless_paging::{PAGE_SIZE, Pages};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::object::MemoryObject;
use crate::ops::madvise::{advice, allow};
use crate::space::AddressSpace;

impl<M: Machine> AddressSpace<M> {
    /// Punches holes for `pages`, mapping by mapping.
    ///
    /// # Errors
    /// `EINVAL` where there is no memory object, `EACCES` where it is not mapped shared for writing, `ENODEV`
    /// where it is a device; what comes before is punched. `ENOMEM` for holes between mappings, after
    /// everything else is done.
    pub(crate) fn remove(&self, pages: Pages) -> Result<(), Errno> {
        let mut at = pages.start;
        let mut has_holes = false;
        while at < pages.end {
            let Some((part, store, index)) = self.store_behind(at, pages.end)? else {
                return Err(Errno::ENOMEM);
            };
            has_holes |= part.start != at;
            let start = index.checked_mul(PAGE_SIZE).ok_or(Errno::EINVAL)?;
            self.report_removal(part.start * PAGE_SIZE..part.end * PAGE_SIZE);
            store.punch(start..start.saturating_add(part.len() * PAGE_SIZE))?;
            at = part.end;
        }
        match has_holes {
            true => Err(Errno::ENOMEM),
            false => Ok(()),
        }
    }

    /// Returns the first run from `page` on, its object, and the page of the object with which it begins.
    #[allow(clippy::type_complexity)]
    fn store_behind(
        &self,
        page: u64,
        limit: u64,
    ) -> Result<Option<(Pages, MemoryObject<M>, u64)>, Errno> {
        let _hold = self.maps.hold_range(Pages::new(page, limit));
        let mut at = page;
        let (pages, mapping) = loop {
            let Some(run) = self.maps.run_in(at, limit) else {
                return Ok(None);
            };
            // SAFETY: the hold keeps mappings from being retired.
            match unsafe { run.word.mapping() } {
                Some(mapping) => break (run.pages, mapping),
                // A zap is still in progress here.
                None => at = run.pages.end,
            }
        };
        let attributes = mapping.attributes();
        allow(attributes, advice::REMOVE)?;
        let backed = attributes.backed.ok_or(Errno::EINVAL)?;
        if !attributes.flags.shared || attributes.flags.never_written {
            return Err(Errno::EACCES);
        }
        if attributes.flags.device {
            return Err(Errno::ENODEV);
        }
        let store = MemoryObject::of(self.memory(), backed.pointer());
        Ok(Some((pages, store, backed.index(pages.start))))
    }
}
