//! Events: what the handler of a userfaultfd is told about changes of registered mappings, if it asks for that.
//!
//! * The thread that makes the change waits, with nothing held, until the event is read, until the handler has gone,
//!   or until the thread is killed. From before the change on, requests of the handler fail with `EAGAIN`: it reads
//!   the event first.
//! * A discard waits before it takes pages. All other changes wait afterwards.
//! * An operation reports to at most four userfaultfds.
//!
//! In a space that was never registered with a userfaultfd, an operation pays one test of a word.
//!
//! *Writes*: the userfaultfd's queue, and its count of changes.

use core::ops::Range;

use faultless_frames::NoMemory;
use faultless_paging::{PAGE_SIZE, Pages};

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::base::notes::Note;
use crate::base::userfault::queue::Message;
use crate::base::userfault::{Handler, Userfault, numbers as userfault};
use crate::ops::madvise::allow;
use crate::space::AddressSpace;
use crate::tree::mapping::Attributes;

/// The most userfaultfds to which one operation reports.
pub(crate) const MOST: usize = 4;

/// A change of registered mappings, in progress.
pub(crate) struct Change<M: Machine> {
    told: [Option<Userfault<M>>; MOST],
}

impl<M: Machine> Change<M> {
    /// No change that is reported.
    pub(crate) fn none() -> Self {
        Self {
            told: [const { None }; MOST],
        }
    }

    /// Adds the userfaultfd of a mapping, once.
    fn add(&mut self, to: Userfault<M>, handler: Handler) {
        for place in &mut self.told {
            match place {
                Some(other) if handler.is_with(other) => return,
                Some(_) => {}
                None => {
                    to.begin_change();
                    *place = Some(to);
                    return;
                }
            }
        }
    }

    /// Reports the change, after it was made, and waits.
    pub(crate) fn report(self, message: Message) {
        for to in self.told.iter().flatten() {
            to.report(message);
        }
    }
}

impl<M: Machine> Drop for Change<M> {
    fn drop(&mut self) {
        self.told.iter().flatten().for_each(Userfault::end_change);
    }
}

/// Names a child's userfaultfd, given that of its parent first.
type Name<'n, M> = dyn FnMut(&Userfault<M>, &Userfault<M>) -> Option<u64> + 'n;

/// The userfaultfds that follow a fork, each with that of the child, to be reported.
pub struct Forked<M: Machine> {
    pairs: [Option<(Userfault<M>, Userfault<M>)>; MOST],
}

impl<M: Machine> Forked<M> {
    pub(crate) fn none() -> Self {
        Self {
            pairs: [const { None }; MOST],
        }
    }

    /// Returns the registration of the child's copy of a mapping that is registered. Beyond a few userfaultfds it has
    /// none.
    pub(crate) fn handler_of(
        &mut self,
        memory: &'static Memory<M>,
        handler: Handler,
    ) -> Result<Handler, NoMemory> {
        for place in &mut self.pairs {
            match place {
                Some((parent, child)) if handler.is_with(parent) => {
                    return Ok(child.handler(handler.modes()));
                }
                Some(_) => {}
                None => {
                    let Some(parent) = Userfault::of(memory, handler) else {
                        break;
                    };
                    let child = parent.for_child()?;
                    let registered = child.handler(handler.modes());
                    parent.begin_change();
                    *place = Some((parent, child));
                    return Ok(registered);
                }
            }
        }
        Ok(Handler::NONE)
    }

    /// Reports each fork to its handler, and waits. `name` gets the userfaultfd that the parent's handler has, and that
    /// of the child, which it keeps; it returns the port's name for what a reader of the message gets. `unread` gets
    /// such a name back if nothing reads it.
    pub fn report(mut self, name: &mut Name<'_, M>, unread: &mut dyn FnMut(u64)) {
        for place in &mut self.pairs {
            let Some((parent, child)) = place.take() else {
                continue;
            };
            match name(&parent, &child) {
                Some(child) if parent.report(Message::Fork { child }) => {}
                Some(child) => unread(child),
                None => child.close(),
            }
            parent.end_change();
        }
    }
}

impl<M: Machine> Drop for Forked<M> {
    fn drop(&mut self) {
        for (parent, child) in self.pairs.iter().flatten() {
            // No handler will be there for the child.
            child.close();
            parent.end_change();
        }
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Begins a change of `pages` that is reported to userfaultfds with this feature.
    #[inline]
    pub(crate) fn begin_change(&self, pages: Pages, feature: u64) -> Option<Change<M>> {
        match self.maps.has_note(Note::USERFAULT) {
            true => Some(self.begin_change_of(pages, feature)),
            false => None,
        }
    }

    /// The same, where mappings may be registered.
    #[cold]
    pub(crate) fn begin_change_of(&self, pages: Pages, feature: u64) -> Change<M> {
        let mut change = Change::none();
        let mut at = pages.start;
        while let Some((part, to, handler)) = self.next_told(at, pages.end, feature) {
            change.add(to, handler);
            at = part.end;
        }
        change
    }

    /// Reports that `pages` were unmapped, if that is so.
    #[inline]
    pub(crate) fn report_unmap(&self, change: Option<Change<M>>, pages: Pages, is_done: bool) {
        if let Some(change) = change
            && is_done
        {
            change.report(Message::Unmap {
                start: pages.start * PAGE_SIZE,
                end: pages.end * PAGE_SIZE,
            });
        }
    }

    /// Reports that pages are about to be discarded by this advice, as far as mappings allow it.
    #[inline]
    pub(crate) fn report_discard(&self, pages: Pages, what: i32) {
        if self.maps.has_note(Note::USERFAULT) {
            self.report_removal_of(pages, &|of| allow(of, what).is_ok());
        }
    }

    /// Reports that what the object of the pages of a byte range has is about to be removed there (`MADV_REMOVE`), for
    /// a port that does that itself.
    pub fn report_removal(&self, range: Range<u64>) {
        if self.maps.has_note(Note::USERFAULT) {
            self.report_removal_of(Pages::of_bytes(range), &|_| true);
        }
    }

    #[cold]
    fn report_removal_of(&self, pages: Pages, is_meant: &dyn Fn(&Attributes) -> bool) {
        let mut at = pages.start;
        while let Some((part, to, handler)) = self.next_told(at, pages.end, userfault::EVENT_REMOVE)
        {
            at = part.end;
            let of = self.lookup(part.start * PAGE_SIZE);
            if !of.as_ref().is_some_and(is_meant) {
                return;
            }
            let mut change = Change::none();
            change.add(to, handler);
            change.report(Message::Remove {
                start: part.start * PAGE_SIZE,
                end: part.end * PAGE_SIZE,
            });
        }
    }

    /// Returns the first mapping from `page` on that is registered with a userfaultfd with this feature.
    fn next_told(
        &self,
        page: u64,
        limit: u64,
        feature: u64,
    ) -> Option<(Pages, Userfault<M>, Handler)> {
        let _section = self.memory().enter();
        let mut at = page;
        while at < limit {
            let run = self.tree().next_until(at, limit)?;
            at = run.pages.end;
            // SAFETY: read in this section.
            let mapping = unsafe { run.word.mapping() };
            let handler = mapping.map_or(Handler::NONE, |mapping| mapping.attributes().handler);
            if !handler.is_none()
                && handler.with_feature(feature)
                && let Some(to) = Userfault::of(self.memory(), handler)
            {
                return Some((run.pages, to, handler));
            }
        }
        None
    }
}
