//! The requests of a userfaultfd: registers mappings, and does what its handler asks for (Linux: `UFFDIO_*`).
//!
//! * Registration is an attribute of mappings. It changes like advice ([`crate::ops::attributes`]): a fault in
//!   between finds another slot value when it validates, and tries again.
//! * `events` tells the handler of changes.
//! * `fill` and `moving` put pages into entries, `protect` write-protects pages. Both claim, validate and publish like a
//!   fault. No mapping changes, and no lock is held that a fault would wait for.
//! * None of these wakes a fault by itself, except the end of a registration. The port calls
//!   [`Userfault::wake`](crate::Userfault::wake) where Linux does.
//!
//! *Models*: loom `fault/userfault.rs`.

pub(crate) mod events;
mod fill;
mod moving;
mod protect;

use faultless_paging::{PAGE_SIZE, Pages};

pub use events::Forked;
pub use fill::Filled;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::notes::Note;
use crate::base::userfault::{Handler, Userfault, numbers as userfault};
use crate::space::AddressSpace;
use crate::tree::mapping::Attributes;

/// Whether a mapping can be registered for these modes.
fn allows<M: Machine>(of: &Attributes, with: &Userfault<M>, modes: u64) -> bool {
    let is_memory = !of.flags.device;
    if of.flags.droppable || modes & userfault::MINOR != 0 && (of.backed.is_none() || !is_memory) {
        return false;
    }
    is_memory || with.has(userfault::WP_ASYNC) && modes == userfault::WRITE_PROTECT
}

impl<M: Machine> AddressSpace<M> {
    /// Returns the pages of a byte range of a request.
    ///
    /// # Errors
    /// `EINVAL` for a range that is empty, not aligned, or not in user memory.
    pub fn userfault_range(&self, start: u64, length: u64) -> Result<Pages, Errno> {
        let end = self.layout().end;
        let is_aligned = start.is_multiple_of(PAGE_SIZE) && length.is_multiple_of(PAGE_SIZE);
        if !is_aligned || length == 0 || start < self.layout().lowest || start >= end {
            return Err(Errno::EINVAL);
        }
        match length > end - start {
            true => Err(Errno::EINVAL),
            false => Ok(Pages::of_bytes(start..start + length)),
        }
    }

    /// Registers what is mapped of `pages` with a userfaultfd, for these modes ([`userfault`]).
    ///
    /// # Errors
    /// `EINVAL` where nothing is mapped, or something that cannot be registered; `EPERM` for a mapping that can
    /// never be written; `EBUSY` for one that is registered with another; `ENOMEM`.
    pub fn register(&self, with: &Userfault<M>, pages: Pages, modes: u64) -> Result<(), Errno> {
        let lock = self.maps.lock_range(pages);
        self.maps.note(Note::USERFAULT);
        let handler = with.handler(modes);
        self.check_each(pages, &|of| {
            if !allows(of, with, modes) {
                return Err(Errno::EINVAL);
            }
            if of.flags.never_written {
                return Err(Errno::EPERM);
            }
            match of.handler.is_none() || of.handler.is_beside(handler) {
                true => Ok(()),
                false => Err(Errno::EBUSY),
            }
        })?;
        let mut at = pages.start;
        while let Some(run) = self.maps.run_in(at, pages.end) {
            at = run.pages.end;
            // SAFETY: the range keeps mappings from being retired.
            let Some(mapping) = (unsafe { run.word.mapping() }) else {
                continue;
            };
            let from = *mapping.attributes();
            let has_all = from.handler.is_beside(handler) && from.handler.has_all(modes);
            if !has_all {
                let to = Attributes { handler, ..from };
                self.set_run(&lock, run, to, |_| true)?;
            }
        }
        Ok(())
    }

    /// Ends the registration of what is mapped of `pages`, and wakes the faults that wait there.
    ///
    /// # Errors
    /// `EINVAL` where nothing is mapped, or something that cannot be registered; `ENOMEM`.
    pub fn unregister(&self, with: &Userfault<M>, pages: Pages) -> Result<(), Errno> {
        {
            let _lock = self.maps.lock_range(pages);
            self.check_each(pages, &|of| match allows(of, with, of.handler.modes()) {
                true => Ok(()),
                false => Err(Errno::EINVAL),
            })?;
        }
        self.unregister_if(pages, |_| true)
    }

    /// Ends a userfaultfd, of which the handler has gone: no fault waits for it any more, and no mapping of this
    /// space is registered with it.
    pub fn close_userfault(&self, with: &Userfault<M>) {
        with.close();
        // A mapping for which there is no memory stays registered, with what no fault waits for.
        let _ = self.unregister_if(self.all_pages(), |handler| handler.is_with(with));
    }

    /// Ends the registrations of `pages` that `is_meant` accepts.
    fn unregister_if(&self, pages: Pages, is_meant: impl Fn(Handler) -> bool) -> Result<(), Errno> {
        let lock = match pages == self.all_pages() {
            true => self.maps.lock_everything(),
            false => self.maps.lock_range(pages),
        };
        let mut at = pages.start;
        while let Some(run) = self.maps.run_in(at, pages.end) {
            at = run.pages.end;
            // SAFETY: the range keeps mappings from being retired.
            let Some(mapping) = (unsafe { run.word.mapping() }) else {
                continue;
            };
            let from = *mapping.attributes();
            if from.handler.is_none() || !is_meant(from.handler) {
                continue;
            }
            // Held, because the mapping may be the last that leads to it.
            let Some(left) = Userfault::of(self.memory(), from.handler) else {
                continue;
            };
            let to = Attributes {
                handler: Handler::NONE,
                ..from
            };
            match self.set_run(&lock, run, to, |_| true) {
                Err(_) if left.has(userfault::CLOSED) => continue,
                result => result?,
            }
            // Rule R1: a fault, or a request of the handler, that is not seen now sees that it is over.
            lock.validation_fence();
            if from.handler.reports_writes() {
                self.end_protection(run.pages, &to);
            }
            left.wake(run.pages);
        }
        Ok(())
    }

    /// Checks each mapping of `pages`, with the range held.
    ///
    /// # Errors
    /// Those of `check`; `EINVAL` where nothing is mapped.
    fn check_each(
        &self,
        pages: Pages,
        check: &dyn Fn(&Attributes) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let (mut at, mut found) = (pages.start, false);
        while let Some((part, attributes)) = self.maps.mapped_in(at, pages.end) {
            check(&attributes)?;
            (at, found) = (part.end, true);
        }
        match found {
            true => Ok(()),
            false => Err(Errno::EINVAL),
        }
    }

    /// Checks that all of `pages` is one mapping to a program, and registered. Mappings may change meanwhile.
    ///
    /// # Errors
    /// `ENOENT`.
    fn registered(&self, pages: Pages) -> Result<Attributes, Errno> {
        let mut at = pages.start;
        let mut one: Option<Attributes> = None;
        while at < pages.end {
            let part = self.maps.mapped_in(at, pages.end);
            let (part, of) = part.ok_or(Errno::ENOENT)?;
            if part.start != at || of.handler.is_none() || one.is_some_and(|one| one != of) {
                return Err(Errno::ENOENT);
            }
            (at, one) = (part.end, Some(of));
        }
        one.ok_or(Errno::ENOENT)
    }
}
