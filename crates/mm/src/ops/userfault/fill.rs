//! Puts pages into empty entries of registered mappings, for the handler of a userfaultfd.
//!
//! * Private memory gets a page of its own; an object that is mapped shared gets the page, which all its mappings
//!   then show.
//!
//! A page is prepared with nothing held, and then published like that of a fault: the entry is claimed, and the
//! mapping and the table validated. The page belongs to this entry alone. It is mapped writable at once where its
//! mapping is, so that the store that waits for it takes no second fault, and copies nothing. That holds for a
//! page that is write-protected, too, once the protection ends.
//!
//! *Writes*: the entry, the frame and its descriptor.

use faultless_frames::FrameSource;
use faultless_paging::{Access, Frame, Page, Pages, Walk};
use faultless_sync::Backoff;
use faultless_sync::reclaim::Section;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::userfault::Userfault;
use crate::fault::PteRef;
use crate::fault::state::FaultState;
use crate::lock::vma::{Mode, VmaRef};
use crate::object::{Lookup, MemoryObject};
use crate::space::AddressSpace;
use crate::table::retry::{Blocker, Retry};
use crate::table::rss::RssKind;
use crate::tree::mapping::{Attributes, Huge};
use crate::tune::PIN_TRIES;

/// How far a request of a handler has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// The number of pages that were filled.
    pub pages: u64,
    /// Why the next one was not, if there is one.
    pub error: Option<Errno>,
}

/// Fills a page; the state has a frame for a table.
type Fill<'f, M> = dyn FnMut(u64, &mut FaultState<M, ()>) -> Result<(), Errno> + 'f;

/// How far a page has come that the object of a shared mapping gets.
#[derive(Default)]
struct ToObject {
    /// The object has it.
    is_added: bool,
    /// It was swapped out before it could be mapped.
    is_gone: bool,
}

/// Puts something into an entry that is empty, a marker, or poison.
pub(super) type Put<'p> =
    dyn FnMut(&PteRef<'_>, &Attributes, &Section<'_>) -> Result<Result<(), Errno>, Retry> + 'p;

/// The same, and says what became of an object's page.
type PutOrGone<'p> =
    dyn FnMut(&PteRef<'_>, &Attributes, &mut ToObject) -> Result<Result<(), Errno>, Retry> + 'p;

impl<M: Machine> AddressSpace<M> {
    /// Fills `pages` with copies (`UFFDIO_COPY`), of which stores are reported if `protected`. `content` copies the
    /// page with this number, counted from the first, into a frame. It is called with nothing held.
    ///
    /// # Errors
    /// In the result: `ENOENT` where the pages are not one registered mapping; `EEXIST` where there is a page;
    /// `EINVAL` if stores are to be reported and cannot be; `EAGAIN` beside a change that waits for an event to be
    /// read; `ENOMEM`; those of `content`.
    pub fn userfault_copy(
        &self,
        by: &Userfault<M>,
        pages: Pages,
        protected: bool,
        content: &mut dyn FnMut(u64, Frame) -> Result<(), Errno>,
    ) -> Filled {
        let check = |of: &Attributes| match protected && !of.handler.reports_writes() {
            true => Err(Errno::EINVAL),
            false => Ok(()),
        };
        let mut new = FaultState::new(self.memory(), (), true);
        self.fill_each(by, pages, &check, &mut |page, tables| {
            let frame = self.frame_to_fill(&mut new)?;
            content(page - pages.start, frame)?;
            self.put_until_shown(Page(page), tables, &mut |at, of, to| {
                check(of).map_err(|_| Retry::MappingChanged)?;
                if of.backed.is_some() && of.flags.shared {
                    return self.put_in_object(at, of, Page(page), (&mut new, to), protected);
                }
                self.put_copy(at, Page(page), &mut new, protected).map(Ok)
            })
        })
    }

    /// Maps the pages of their object, which has them (`UFFDIO_CONTINUE`). Stores are reported if `protected`.
    ///
    /// # Errors
    /// As [`AddressSpace::userfault_copy`]; `EFAULT` where the object does not have the page, `EINVAL` where there
    /// is no object.
    pub fn userfault_continue(&self, by: &Userfault<M>, pages: Pages, protected: bool) -> Filled {
        let check = |of: &Attributes| {
            let is_wrong = protected && !of.handler.reports_writes() || of.backed.is_none();
            match is_wrong {
                true => Err(Errno::EINVAL),
                false => Ok(()),
            }
        };
        self.fill_each(by, pages, &check, &mut |page, tables| {
            self.put_until_shown(Page(page), tables, &mut |at, of, to| {
                check(of).map_err(|_| Retry::MappingChanged)?;
                let backed = of.backed.ok_or(Retry::MappingChanged)?;
                match backed.object().find(backed.index(page)) {
                    Lookup::Page(found) => self.show_for_handler(at, of, found, protected).map(Ok),
                    Lookup::Moving | Lookup::Filling => Err(Retry::PageChanged),
                    Lookup::Swapped => {
                        to.is_gone = true;
                        Ok(Ok(()))
                    }
                    Lookup::Missing | Lookup::Beyond => Ok(Err(Errno::EFAULT)),
                }
            })
        })
    }

    /// As [`AddressSpace::put`]. A page of an object that was swapped out is brought back, and `put` called again.
    fn put_until_shown(
        &self,
        page: Page,
        tables: &mut FaultState<M, ()>,
        put: &mut PutOrGone<'_>,
    ) -> Result<(), Errno> {
        let mut to = ToObject::default();
        loop {
            to.is_gone = false;
            self.put(page, tables, &mut |at, of, _| put(at, of, &mut to))?;
            if !to.is_gone {
                return Ok(());
            }
            self.bring_object_page_back(page, tables)?;
        }
    }

    /// Brings back the object's page at `page`, if it was swapped out. Waits for its device.
    fn bring_object_page_back(
        &self,
        page: Page,
        tables: &mut FaultState<M, ()>,
    ) -> Result<(), Errno> {
        while let Some((store, index)) = self.swapped_object_page(page.0) {
            match store.fill(index) {
                Err(Errno::ENOMEM) => {
                    // Nothing is held meanwhile, the object included.
                    drop(store);
                    let of = (page.address(), Access::Write);
                    if self.wait_for(Blocker::Memory, of, tables).is_some() {
                        return Err(Errno::ENOMEM);
                    }
                }
                result => return result.map(drop),
            }
        }
        Ok(())
    }

    /// Returns the object and the index of the page at `page`, if that was swapped out.
    fn swapped_object_page(&self, page: u64) -> Option<(MemoryObject<M>, u64)> {
        let _section = self.memory().enter();
        // SAFETY: in this section.
        let mapping = unsafe { self.tree().find(page).word.mapping() }?;
        let backed = mapping.attributes().backed?;
        let index = backed.index(page);
        let is_swapped = matches!(backed.object().find(index), Lookup::Swapped);
        is_swapped.then(|| (MemoryObject::of(self.memory(), backed.pointer()), index))
    }

    /// Fills `pages` with the shared zero page (`UFFDIO_ZEROPAGE`).
    ///
    /// # Errors
    /// As [`AddressSpace::userfault_copy`].
    pub fn userfault_zero(&self, by: &Userfault<M>, pages: Pages) -> Filled {
        let mut new = FaultState::new(self.memory(), (), true);
        self.fill_each(by, pages, &|_| Ok(()), &mut |page, tables| {
            self.put_until_shown(Page(page), tables, &mut |at, of, to| {
                if of.backed.is_some() && of.flags.shared {
                    new.page()?;
                    return self.put_in_object(at, of, Page(page), (&mut new, to), false);
                }
                self.map_zero_page::<()>(at).map(Ok)
            })
        })
    }

    /// Poisons `pages`: every access to them is an error (`UFFDIO_POISON`).
    ///
    /// # Errors
    /// As [`AddressSpace::userfault_copy`].
    pub fn userfault_poison(&self, by: &Userfault<M>, pages: Pages) -> Filled {
        self.fill_each(by, pages, &|_| Ok(()), &mut |page, tables| {
            self.put(Page(page), tables, &mut |at, _, _| {
                self.tables()
                    .transact(at, || Ok(Self::FORMAT.poison()))
                    .map(Ok)
            })
        })
    }

    /// Calls `fill` for each of `pages`, until that fails.
    pub(super) fn fill_each(
        &self,
        by: &Userfault<M>,
        pages: Pages,
        check: &dyn Fn(&Attributes) -> Result<(), Errno>,
        fill: &mut Fill<'_, M>,
    ) -> Filled {
        let begin = || {
            if by.is_changing() {
                return Err(Errno::EAGAIN);
            }
            let attributes = self.registered(pages)?;
            if attributes.flags.huge == Huge::Pooled {
                // Only whole huge pages could be filled.
                return Err(Errno::EINVAL);
            }
            check(&attributes)
        };
        let mut filled = Filled {
            pages: 0,
            error: begin().err(),
        };
        let mut tables = FaultState::new(self.memory(), (), true);
        for page in pages.start..pages.end {
            if filled.error.is_some() {
                break;
            }
            match fill(page, &mut tables).and_then(|()| self.populates_on(page + 1)) {
                Ok(()) => filled.pages += 1,
                Err(error) => filled.error = Some(error),
            }
            self.machine().poll();
        }
        filled
    }

    /// Returns a frame to copy a page to.
    fn frame_to_fill(&self, new: &mut FaultState<M, ()>) -> Result<Frame, Errno> {
        loop {
            if let Ok(frame) = new.page_to_fill() {
                return Ok(frame);
            }
            if self
                .wait_for(Blocker::Memory, (0, Access::Write), new)
                .is_some()
            {
                return Err(Errno::ENOMEM);
            }
        }
    }

    /// Puts something into the entry of a page. `tables` has a frame for a table, if one is needed.
    pub(super) fn put(
        &self,
        page: Page,
        tables: &mut FaultState<M, ()>,
        put: &mut Put<'_>,
    ) -> Result<(), Errno> {
        let mut backoff = Backoff::new();
        loop {
            match self.try_to_put(page, tables, put) {
                Ok(result) => return result,
                Err(Retry::Wait(blocker)) => {
                    let of = (page.address(), Access::Write);
                    if self.wait_for(blocker, of, tables).is_some() {
                        return Err(Errno::ENOMEM);
                    }
                }
                Err(_) if backoff.turns() >= PIN_TRIES => {
                    // A writer is at work there. It waits for nothing that is held here.
                    drop(self.maps.hold_range(Pages::new(page.0, page.0 + 1)));
                    backoff = Backoff::new();
                    continue;
                }
                Err(_) => {}
            }
            backoff.rest(self.machine());
        }
    }

    fn try_to_put(
        &self,
        page: Page,
        tables: &mut FaultState<M, ()>,
        put: &mut Put<'_>,
    ) -> Result<Result<(), Errno>, Retry> {
        let section = self.memory().enter();
        // By validation alone, whatever the policy: writers run the same protocol under every policy.
        let Some(vma) = VmaRef::find(&self.maps, page, Mode::Locked, &section)? else {
            return Ok(Err(Errno::ENOENT));
        };
        let attributes = vma.attributes().filter(|of| !of.handler.is_none());
        let Some(attributes) = attributes else {
            return Ok(Err(Errno::ENOENT));
        };
        let at = loop {
            let (entry, value, link, is_leaf) = match self.tables().descend(page, &section) {
                Walk::Leaf { entry, value, link } => (entry, value, link, true),
                Walk::Missing { entry, link, .. } => (entry, 0, link, false),
                Walk::Busy | Walk::Huge { .. } => return Err(Retry::TableChanged),
            };
            let at = PteRef {
                entry,
                value,
                link,
                vma: &vma,
            };
            if is_leaf {
                break at;
            }
            self.install_table(&at, tables)?;
        };
        if at.link.is_frozen() {
            return Err(Retry::Wait(Blocker::Fork));
        }
        if Self::FORMAT.is_claimed(at.value) {
            return Err(Retry::EntryClaimed);
        }
        let (marker, poison) = (Self::FORMAT.marker(), Self::FORMAT.poison());
        if ![0, marker, poison].contains(&at.value) {
            at.validate()?;
            return Ok(Err(Errno::EEXIST));
        }
        put(&at, attributes, &section)
    }

    /// Adds the frame of `new`, which holds the content of the page, to the object of a shared mapping, unless an
    /// earlier try has, and maps it.
    fn put_in_object(
        &self,
        at: &PteRef<'_>,
        of: &Attributes,
        page: Page,
        (new, to): (&mut FaultState<M, ()>, &mut ToObject),
        protected: bool,
    ) -> Result<Result<(), Errno>, Retry> {
        let backed = of.backed.as_ref().ok_or(Retry::MappingChanged)?;
        let (object, index) = (backed.object(), backed.index(page.0));
        if object.is_device() {
            return Ok(Err(Errno::EINVAL));
        }
        if !to.is_added {
            match object.find(index) {
                Lookup::Beyond => return Ok(Err(Errno::EFAULT)),
                Lookup::Missing if object.is_zeroes(index) => {}
                _ => return Ok(Err(Errno::EEXIST)),
            }
            self.memory()
                .make_slot(object, index)
                .map_err(|_| Retry::Wait(Blocker::Memory))?;
            let frame = new.filled_page().ok_or(Retry::PageChanged)?;
            match self.memory().add_page(object, index, frame) {
                Ok(true) => new.page_used(),
                Ok(false) => return Ok(Err(Errno::EEXIST)),
                Err(Errno::ENOMEM) => return Err(Retry::Wait(Blocker::Memory)),
                Err(_) => return Ok(Err(Errno::ENOMEM)),
            }
            to.is_added = true;
        }
        match object.find(index) {
            Lookup::Page(found) => self.show_for_handler(at, of, found, protected).map(Ok),
            // Moving to another frame, or truncated meanwhile.
            Lookup::Moving => Err(Retry::PageChanged),
            // It has left again already. A fault would bring it back, but not its protection.
            Lookup::Swapped => {
                to.is_gone = true;
                Ok(Ok(()))
            }
            _ => Ok(Err(Errno::EFAULT)),
        }
    }

    /// Publishes the frame of `new`, which holds the content of the page.
    fn put_copy(
        &self,
        at: &PteRef<'_>,
        page: Page,
        new: &mut FaultState<M, ()>,
        protected: bool,
    ) -> Result<(), Retry> {
        let frame = new.filled_page().ok_or(Retry::PageChanged)?;
        let format = Self::FORMAT;
        // Unreachable until the entry is published (rule R7).
        let descriptor = self.machine().frames().descriptor(frame);
        descriptor.set_anonymous(self.number(), page.0);
        let protection = at.vma.protection();
        self.tables().transact(at, || {
            new.page_used();
            let leaf = format.leaf_of(frame, protection.write, protection, true);
            let leaf = format.with_protection(format.written(leaf), protection, true);
            let leaf = match protected {
                true => format.reported(leaf),
                false => leaf,
            };
            Ok(self.tables().with_tlb_owner(leaf))
        })?;
        let cpu = self.machine().cpu();
        self.tables().rss.came(cpu, RssKind::Anonymous);
        Ok(())
    }
}
