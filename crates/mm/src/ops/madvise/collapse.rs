//! `MADV_COLLAPSE`: small pages become huge ones, now.
//!
//! As on Linux, the advice holds whatever the machine's settings are, but not where the program wants no huge pages. Each
//! aligned span in the range is tried; pages that were swapped out are read first. The call fails if one of the spans is not
//! a huge page in the end, and the others are all the same.
//!
//! The work is in [`crate::table::collapse`].

use faultless_frames::{FrameSource, NoMemory};
use faultless_paging::{Frame, Pages};
use faultless_sync::{Backoff, cond_resched};
use faultless_trace::Counter;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::ops::madvise::{advice, allow};
use crate::space::AddressSpace;
use crate::table::collapse::{Bounds, Collapsed, NewHuge};
use crate::table::huge::huge_span;
use crate::tree::mapping::{Attributes, Huge};

/// Tries that meet another operation in the table, before the call gives up.
const TRIES: u32 = 256;

impl<M: Machine> AddressSpace<M> {
    /// Collapses the aligned spans in `pages`.
    ///
    /// # Errors
    /// `EINVAL` if a mapping gets no huge pages, none fits, or a page cannot be in one; `ENOMEM` without a block of frames;
    /// `EAGAIN` if another operation was at work.
    pub(crate) fn collapse(&self, pages: Pages) -> Result<(), Errno> {
        let span_len = huge_span(0).len();
        let mut spans = pages.start.next_multiple_of(span_len)..pages.end / span_len * span_len;
        let mut result = match spans.start > spans.end {
            true => Err(Errno::EINVAL),
            false => Ok(()),
        };
        self.over_mapped(pages, advice::COLLAPSE, |part| {
            match !self.huge_is_off() && self.has_span(part.start) {
                true => Ok(()),
                false => Err(Errno::EINVAL),
            }
        })?;
        while spans.start < spans.end {
            let span = huge_span(spans.start);
            spans.start = span.end;
            self.bring_back(span);
            result = result.and(self.collapse_span(span));
            cond_resched(self.machine());
        }
        result
    }

    /// Whether the mapping of a page has an aligned span.
    fn has_span(&self, page: u64) -> bool {
        let _section = self.memory().enter();
        self.tree().next(page).is_some_and(|run| {
            let last = run.pages.end.checked_sub(huge_span(0).len());
            last.is_some_and(|last| {
                let is_same = |word| word == run.word;
                self.tree().all_slots(huge_span(last), is_same)
            })
        })
    }

    /// Collapses a span, for a program.
    fn collapse_span(&self, span: Pages) -> Result<(), Errno> {
        let (memory, is_allowed) = (self.memory(), |attributes: &Attributes| {
            allow(attributes, advice::COLLAPSE)
        });
        let block = || {
            memory.allocate_huge().or_else(|_| {
                memory.expedite();
                memory.allocate_huge()
            })
        };
        self.make_huge(span, Bounds::NONE, is_allowed, block)
    }

    /// Makes the pages of a span one huge page, in a block that `block` allocates, if `is_allowed` says nothing against their
    /// mapping. No writer, and no other operation that keeps mappings as they are, is at work there meanwhile.
    ///
    /// # Errors
    /// As [`AddressSpace::collapse`].
    pub(crate) fn make_huge(
        &self,
        span: Pages,
        bounds: Bounds,
        is_allowed: impl Fn(&Attributes) -> Result<(), Errno>,
        block: impl FnOnce() -> Result<Frame, NoMemory>,
    ) -> Result<(), Errno> {
        let memory = self.memory();
        let counted = |result: Result<Frame, NoMemory>| {
            result.inspect_err(|_| memory.count(Counter::ThpCollapseFailed))
        };
        let first = counted(block())?;
        let give_back = || memory.free_huge(first);
        let table = memory.allocate_deposit().inspect_err(|_| give_back())?;
        let (result, is_used) = self.make_huge_of((first, table), span, bounds, is_allowed);
        if !is_used {
            give_back();
            let machine = self.machine();
            machine.frames().free(machine.cpu(), table);
        }
        result
    }

    /// The same with a block and a table for its split. Returns whether they are used.
    fn make_huge_of(
        &self,
        (first, table): (Frame, Frame),
        span: Pages,
        bounds: Bounds,
        is_allowed: impl Fn(&Attributes) -> Result<(), Errno>,
    ) -> (Result<(), Errno>, bool) {
        let _lock = self.maps.lock_range(span);
        let attributes = match self.next_part(span.start, span.end) {
            Some((run, Some(attributes))) if run.pages == span && run.word.is_live() => attributes,
            // Several mappings share the span, or it was unmapped since.
            _ => return (Err(Errno::EINVAL), false),
        };
        if let Err(error) = is_allowed(&attributes) {
            return (Err(error), false);
        }
        let (format, protection) = (Self::FORMAT, attributes.protection);
        // It counts as written: of a page that was, nothing else would say so.
        let leaf = format.leaf_of(first, protection.write, protection, true);
        let new = NewHuge {
            first,
            table,
            leaf: format.huge(format.written(leaf)),
            owner: self.number(),
            bounds,
        };
        let mut backoff = Backoff::new();
        let (ended, is_used) = loop {
            let (ended, is_used) = self.tables().collapse(span, &new);
            if ended != Collapsed::Busy || backoff.turns() >= TRIES {
                break (ended, is_used);
            }
            backoff.rest(self.machine());
        };
        let result = match ended {
            Collapsed::Done => Ok(()),
            Collapsed::Busy => Err(Errno::EAGAIN),
            Collapsed::Unfit => Err(Errno::EINVAL),
        };
        (result, is_used)
    }
}

/// Whether a mapping may have huge pages on request, whatever the machine's settings are.
pub(super) fn may_collapse(attributes: &Attributes) -> bool {
    attributes.backed.is_none()
        && attributes.handler.is_none()
        && attributes.flags.huge != Huge::Unwanted
        && !attributes.protection.is_none()
}
