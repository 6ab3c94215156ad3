//! Faults on huge pages of private anonymous memory.
//!
//! * Where an entry above the lowest level is empty, huge pages are wanted, and one mapping covers the whole span, a
//!   write maps a fresh huge page, and a read the shared huge zero page. It is the protocol of a small page, one level up:
//!   claim, fence, validate, publish. Validation asks every slot of the span whether it still holds the mapping.
//! * Where a table is, but empty, the huge page takes its place ([`crate::table::vacated`]). The shortest path of a fault does
//!   not look for that: with huge pages, faults take another one ([`faultless_trace::Detours`]).
//! * A write to the huge zero page maps a fresh huge page in its place. So memory that is read first costs two faults, not
//!   one for each small page.
//! * Without a free block of frames, or where two mappings share the span, the fault maps a small page. It never waits
//!   for a block.
//! * A write to a huge page that is read-only raises it as a whole, if one mapping covers the span and no other space uses any
//!   of its frames ([`crate::table::huge_share`]). Else it is split, and the write goes on as on small pages.
//!
//! *Writes*: the entry; the frames and their descriptors.
//!
//! *Models*: loom `fault/huge.rs`.

use faultless_frames::FrameSource;
use faultless_paging::{Access, ENTRIES, Gather, Page, Walk};
use faultless_sync::reclaim::Section;
use faultless_sync::{Mutant, mutant};
use faultless_trace::{Counter, How};

use crate::base::huge::HugeMode;
use crate::base::machine::Machine;
use crate::fault::state::FaultState;
use crate::fault::trace::TraceSink;
use crate::fault::{Outcome, PteRef};
use crate::lock::vma::VmaRef;
use crate::space::AddressSpace;
use crate::table::huge::{HUGE_LEVEL, huge_span};
use crate::table::huge_share::begin_huge;
use crate::table::retry::Retry;
use crate::table::rss::{RssDelta, RssKind};
use crate::tree::mapping::{Attributes, Huge};

impl<M: Machine> AddressSpace<M> {
    /// Resolves an access where a huge page is or may be. `None`: it is one on small pages.
    #[inline]
    pub(crate) fn resolve_huge<N: TraceSink>(
        &self,
        at: &PteRef<'_>,
        page: Page,
        access: Access,
        prepared: &mut FaultState<M, N>,
    ) -> Result<Option<Outcome>, Retry> {
        let is_resolved = match at.value {
            0 if self.memory().huge.is_never() || N::FORCES => false,
            0 if at.vma.is_special() => return self.map_huge_of_object(at, page, access, prepared),
            0 => self.map_huge_page(at, page, access, prepared)?,
            _ => self.meet_huge_page(at, page, access, prepared)?,
        };
        Ok(is_resolved.then_some(Outcome::Resolved))
    }

    /// Resolves an access where no table is, with a huge page. Returns whether that was possible; else a table is
    /// installed as usual.
    #[cold]
    #[inline(never)]
    pub(crate) fn map_huge_page<N: TraceSink>(
        &self,
        at: &PteRef<'_>,
        page: Page,
        access: Access,
        prepared: &mut FaultState<M, N>,
    ) -> Result<bool, Retry> {
        if !self.wants_huge_page(at, page) {
            return Ok(false);
        }
        self.register_for_scan();
        if access == Access::Write {
            let is_mapped = self.map_fresh_huge_page(at, page, prepared)?;
            if is_mapped {
                prepared.trail.ends(How::FirstTouch);
            }
            return Ok(is_mapped);
        }
        if !self.memory().huge.reads_share() {
            return Ok(false);
        }
        let (frames, cpu) = (self.machine().frames(), self.machine().cpu());
        let Ok(zero) = frames.make_huge_zero(cpu) else {
            return Ok(false);
        };
        let format = Self::FORMAT;
        let leaf = format.huge(format.leaf_of(zero, false, at.vma.protection(), false));
        let is_mapped = self.tables().transact_over(at, huge_span(page.0), || {
            self.validate_span(at, page)?;
            Ok(self.tables().with_tlb_owner(leaf))
        })?;
        if !is_mapped {
            return Ok(false);
        }
        self.memory().count(Counter::ThpZeroPageMaps);
        prepared.trail.ends(How::ZeroPage);
        Ok(true)
    }

    /// Resolves an access to an empty entry with a huge page, if its whole table is empty. `None`: a small page is mapped as
    /// usual.
    #[cold]
    #[inline(never)]
    pub(crate) fn map_huge_over_table<'s, N: TraceSink>(
        &'s self,
        vma: &VmaRef<'s>,
        page: Page,
        access: Access,
        prepared: &mut FaultState<M, N>,
        section: &'s Section<'_>,
    ) -> Result<Option<Outcome>, Retry> {
        let may_be = match vma.is_special() {
            true => vma
                .attributes()
                .and_then(|of| of.backed)
                .is_some_and(|backed| backed.object().may_have_huge()),
            false => self.memory().huge.mode() != HugeMode::Never,
        };
        if !may_be || N::FORCES {
            return Ok(None);
        }
        let at = match self.tables().descend_to(page, HUGE_LEVEL, section) {
            Walk::Leaf { entry, value, link } if Self::FORMAT.is_table(value) => PteRef {
                entry,
                value,
                link,
                vma,
            },
            // The table has gone.
            _ => return Err(Retry::TableChanged),
        };
        // First what takes no look at all entries.
        if !vma.is_special() && !self.wants_huge_page(&at, page) {
            return Ok(None);
        }
        if self.tables().is_vacated(at.value) {
            if vma.is_special() {
                return self.map_huge_of_object(&at, page, access, prepared);
            }
            let is_mapped = self.map_huge_page(&at, page, access, prepared)?;
            return Ok(is_mapped.then_some(Outcome::Resolved));
        }
        if !self.is_registered_for_scan() && self.wants_huge_page(&at, page) {
            self.register_for_scan();
        }
        Ok(None)
    }

    /// Whether the span around a page is to have a huge page, as far as its mapping and the settings say.
    fn wants_huge_page(&self, at: &PteRef<'_>, page: Page) -> bool {
        at.vma.attributes().is_some_and(|attributes| {
            self.wants_huge_pages(attributes) && at.vma.covers(&self.maps, huge_span(page.0))
        })
    }

    /// Whether faults map huge pages in mappings with these attributes, where they have room (Linux: `THPeligible`).
    pub fn wants_huge_pages(&self, attributes: &Attributes) -> bool {
        if let Some(backed) = &attributes.backed {
            return attributes.flags.huge != Huge::Pooled
                && !self.huge_is_off()
                && attributes.flags.huge != Huge::Unwanted
                && attributes.handler.is_none()
                && self.object_wants_huge(attributes, backed.object());
        }
        let is_wanted = match (self.memory().huge.mode(), attributes.flags.huge) {
            (HugeMode::Never, _) | (_, Huge::Unwanted) => false,
            (HugeMode::Advised, wish) => wish == Huge::Wanted,
            (HugeMode::Always, _) => true,
        };
        is_wanted
            && !self.huge_is_off()
            && !attributes.flags.grows_down
            && attributes.handler.is_none()
    }

    /// Validates what a claim of the entry of a huge page needs beside [`PteRef::validate`]: the mapping covers its span.
    /// After the claim's fence, whose partner is that of rule R1 in a writer that changes a slot of the span.
    pub(crate) fn validate_span(&self, at: &PteRef<'_>, page: Page) -> Result<(), Retry> {
        match at.vma.covers(&self.maps, huge_span(page.0)) || mutant(Mutant::SpanNotValidated) {
            true => Ok(()),
            false => Err(Retry::MappingChanged),
        }
    }

    /// Maps a fresh huge page, in place of nothing, of an empty table or of the huge zero page. `Ok(false)`: no block is
    /// free, or the table is not empty.
    fn map_fresh_huge_page<N: TraceSink>(
        &self,
        at: &PteRef<'_>,
        page: Page,
        prepared: &mut FaultState<M, N>,
    ) -> Result<bool, Retry> {
        let Some((first, table)) = prepared.huge_page() else {
            self.memory().count(Counter::ThpFaultFallback);
            return Ok(false);
        };
        let format = Self::FORMAT;
        begin_huge(
            self.machine().frames(),
            (first, table),
            (self.number(), huge_span(page.0).start),
        );
        let is_mapped = self.tables().transact_over(at, huge_span(page.0), || {
            self.validate_span(at, page)?;
            prepared.huge_page_used();
            let leaf = format.leaf_of(first, true, at.vma.protection(), true);
            if format.is_huge(at.value) && !mutant(Mutant::HugeZeroNotFlushed) {
                let mut gather = Gather::new();
                self.tables().gather_huge(at.value, page.0, &mut gather);
                self.tables().flush(&mut gather);
            }
            Ok(self.tables().with_tlb_owner(format.huge(leaf)))
        })?;
        if !is_mapped {
            return Ok(false);
        }
        let mut came = RssDelta::default();
        came.add_many(RssKind::Anonymous, ENTRIES as u64);
        self.tables().rss.came_all(self.machine().cpu(), &came);
        self.memory().count_huge(first, 1);
        self.memory().count(Counter::ThpFaultAlloc);
        Ok(true)
    }

    /// Resolves an access to a page in a huge page. Returns whether it is resolved; if not, the huge page was split.
    #[cold]
    #[inline(never)]
    pub(crate) fn meet_huge_page<N: TraceSink>(
        &self,
        at: &PteRef<'_>,
        page: Page,
        access: Access,
        prepared: &mut FaultState<M, N>,
    ) -> Result<bool, Retry> {
        let format = Self::FORMAT;
        if format.permits(at.value, access) {
            self.mark_touched(at, access)?;
            prepared.trail.ends(How::Spurious);
            return Ok(true);
        }
        if access != Access::Write {
            // The mapping allows what the entry does not: a writer is changing it.
            return Err(Retry::MappingChanged);
        }
        if N::FORCES {
            self.tables().split(at.entry, at.value, page.0);
            return Ok(false);
        }
        if self.tables().is_huge_zero(at.value) {
            if self.wants_huge_page(at, page) && self.map_fresh_huge_page(at, page, prepared)? {
                prepared.trail.ends(How::ZeroReplaced);
                return Ok(true);
            }
        } else if self.tables().is_huge_of_object(at.value) {
            if self.raise_huge_of_object(at, page)? {
                prepared.trail.ends(How::Reuse);
                return Ok(true);
            }
        } else if at.vma.covers(&self.maps, huge_span(page.0)) && self.raise_huge_page(at, page)? {
            prepared.trail.ends(How::Reuse);
            return Ok(true);
        }
        self.tables().split(at.entry, at.value, page.0);
        Ok(false)
    }

    /// Makes a huge page writable, if no other space uses any of it. Returns whether it did.
    fn raise_huge_page(&self, at: &PteRef<'_>, page: Page) -> Result<bool, Retry> {
        let format = Self::FORMAT;
        let protection = at.vma.protection();
        let mut is_own = false;
        self.tables().transact_present(at, || {
            self.validate_span(at, page)?;
            let base = huge_span(page.0).start;
            is_own = self.tables().take_over_huge(at.value, self.number(), base);
            let raise = is_own;
            Ok(move |value| match raise {
                true => {
                    format.huge(format.with_protection(format.written(value), protection, true))
                }
                false => value,
            })
        })?;
        if is_own {
            self.memory().count(Counter::Reuses);
        }
        Ok(is_own)
    }
}
