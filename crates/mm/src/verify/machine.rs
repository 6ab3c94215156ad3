//! The verifier over a whole machine: every frame has exactly one use.
//!
//! It needs all address spaces, and that nothing else is in the core.
//!
//! 1. Each space is sound by itself ([`AddressSpace::verify`]).
//! 2. As many entries map a page's frame as its descriptor counts, and one entry maps an exclusive frame.
//! 3. A mapping counts as many pages as point to it.
//! 4. Every node, split and mapping that a slab has given out is in one of the trees.
//! 5. Every frame of the machine is free, cached, a page, pinned, a table, small objects, or the port's. A
//!    device's frames are none of these. The rest is lost: the accounts say how many frames, and what they
//!    were last.
//! 6. If nothing is lost, the machine has committed what its address spaces have.

use core::ptr::NonNull;

use faultless_frames::{Accounts, Flags, FrameAudit, FrameSource, Frames, Misuse, Slab, Use};
use faultless_paging::{EntryFormat, Frame, LEVELS, PAGE_SIZE, PhysicalMemory, Table, table};
use faultless_sync::Wait;

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::space::AddressSpace;
use crate::table::huge::{HUGE_LEVEL, frames_of};
use crate::table::huge_share::mappings_of;
use crate::tree::SlotState;
use crate::verify::{Census, Violation};

/// Calls of `expedite` to release all retired objects: each lets readers of three epochs leave.
const EXPEDITIONS: usize = 4;

impl From<Misuse> for Violation {
    fn from(misuse: Misuse) -> Self {
        Violation {
            rule: misuse.rule,
            address: misuse.frame.0 * PAGE_SIZE,
            value: 0,
        }
    }
}

impl<M: Machine> Memory<M> {
    /// Checks the whole machine, of which `frames` are the frames. Only the caller's CPU may be in the core.
    /// `spaces` are all address spaces that exist; `port` enters what the port itself uses. Returns what the
    /// spaces use, and what every frame is.
    ///
    /// # Errors
    /// The first violation found. A frame without an owner is no violation, but lost ([`Accounts::lost`]).
    pub fn verify_machine<'a, P: PhysicalMemory + Wait, S: AsRef<AddressSpace<M>> + 'a>(
        &self,
        frames: &Frames<P>,
        spaces: impl Iterator<Item = &'a S>,
        port: impl FnOnce(&FrameAudit) -> Result<(), Misuse>,
    ) -> Result<(Census, Accounts), Violation> {
        (0..EXPEDITIONS).for_each(|_| self.expedite());
        if self.deferred() != 0 {
            return Err(of_frame(
                "what was retired is not given back at rest",
                Frame(0),
                0,
            ));
        }
        self.drain();
        let audit = frames.audit()?;
        let mut entered = Ok(());
        self.for_each_swap_frame(&mut |frame, is_page| {
            let flags = frames.descriptor(frame).flags();
            let used_for = match is_page {
                true => Use::PAGE,
                false if flags.has(Flags::SWAP) => Use::SWAP,
                false => Use::SPACE,
            };
            entered = entered.and_then(|()| audit.enter(frame, used_for));
        });
        entered?;
        let mut all = Census::default();
        let mut committed = 0;
        for space in spaces.map(S::as_ref) {
            let _section = self.enter();
            audit.enter(space.frame, Use::SPACE)?;
            space
                .maps
                .shard_frames()
                .chain(space.tables().rss.frames())
                .try_for_each(|frame| audit.enter(frame, Use::SPACE))?;
            let mut entered = Ok(());
            space.maps.for_each_room(|frame| {
                entered = entered.and_then(|()| audit.enter(frame, Use::SPACE));
            });
            entered?;
            space.enter_tables(&audit, space.tables().root, LEVELS - 1, 0)?;
            space.enter_objects(&audit)?;
            drop(_section);
            let census = space.verify()?;
            all.zero_pages += census.zero_pages;
            all.tables += census.tables;
            all.mapped += census.mapped;
            all.mappings += census.mappings;
            committed += space.totals().committed;
        }
        self.enter_stores(&audit)?;
        self.enter_userfaults(&audit)?;
        self.enter_probes(&audit)?;
        port(&audit)?;
        audit.for_each(Use::FILE, &mut |frame, descriptor, times| {
            // Its object enters it once.
            if times != descriptor.map_count() + u32::from(descriptor.is_held()) {
                let rule = "a page of a store is not mapped as often as is counted";
                return Err(of_frame(rule, frame, u64::from(times)));
            }
            Ok(())
        })?;
        audit.for_each(Use::PAGE, &mut |frame, descriptor, times| {
            all.pages += 1;
            let wrong = |rule| Err(of_frame(rule, frame, u64::from(times)));
            if times != mappings_of(frames, frame) {
                return wrong("a frame is not mapped as often as is counted");
            }
            if times != 1 && descriptor.flags().has(Flags::EXCLUSIVE) {
                return wrong("an exclusive frame is mapped more than once");
            }
            Ok(())
        })?;
        audit.for_each(Use::SLAB, &mut |frame, _, times| {
            // SAFETY: an object in use was found in it, and no other CPU is in the core.
            let used = unsafe { Slab::objects_in(self.machine(), frame) };
            if used != u64::from(times) {
                let rule = "a node, split or mapping in use is in no tree";
                return Err(of_frame(rule, frame, used));
            }
            Ok(())
        })?;
        let accounts = audit.close();
        if accounts.lost() == 0 && committed != self.committed() {
            let rule = "the machine has committed what no address space has, or not what one has";
            return Err(of_frame(rule, Frame(0), self.committed()));
        }
        Ok((all, accounts))
    }
}

/// Returns a violation at a frame's physical address.
fn of_frame(rule: &'static str, frame: Frame, value: u64) -> Violation {
    Violation {
        rule,
        address: frame.0 * PAGE_SIZE,
        value,
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Enters a table, the tables below it, and their pages. Called inside a section.
    fn enter_tables(
        &self,
        audit: &FrameAudit,
        frame: Frame,
        level: usize,
        page: u64,
    ) -> Result<(), Misuse> {
        audit.enter(frame, Use::TABLE)?;
        // SAFETY: inside the caller's section.
        let entries = unsafe { Table::at(self.machine(), frame) };
        for (i, entry) in entries.entries().iter().enumerate() {
            let at = page + i as u64 * table::span(level);
            if at * PAGE_SIZE >= self.layout().end {
                break;
            }
            let value = entry.load();
            let is_pageless = level == 0
                && !M::Format::FORMAT.is_claimed(value)
                && !M::Format::FORMAT.has_page(value);
            if value == 0 || is_pageless {
                continue;
            }
            let below = M::Format::FORMAT.frame(value);
            if level == HUGE_LEVEL && M::Format::FORMAT.is_huge(value) {
                if !self.tables().is_huge_zero(value) {
                    // As many as entries map the huge page: one for each.
                    let mut tables = self.tables().deposited(value);
                    if let Some(table) = tables.find(|table| !audit.is_entered(*table)) {
                        audit.enter(table, Use::TABLE)?;
                    }
                    let use_of = match self.tables().is_huge_of_object(value) {
                        true => Use::FILE,
                        false => Use::PAGE,
                    };
                    frames_of(below).try_for_each(|frame| audit.enter(frame, use_of))?;
                }
            } else if level > 0 {
                self.enter_tables(audit, below, level - 1, at)?;
            } else if let Some(descriptor) = self.tables().counted(value) {
                let is_file = descriptor.flags().has(Flags::FILE);
                audit.enter(below, if is_file { Use::FILE } else { Use::PAGE })?;
            }
        }
        Ok(())
    }

    /// Enters the tree's nodes, splits and mappings, and checks each mapping's count of pages. Called inside
    /// a section.
    fn enter_objects(&self, audit: &FrameAudit) -> Result<(), Violation> {
        let enter = |object: NonNull<u8>| {
            // SAFETY: nodes, splits and mappings are objects of slabs.
            audit.enter(unsafe { Slab::frame_of(object) }, Use::SLAB)
        };
        self.tree().for_each_object(&mut |object| enter(object))?;
        // Count a mapping's pages in its link, which only a retired mapping needs.
        self.for_each_run(&mut |mapping, _, _| {
            mapping.link().set(0);
            Ok(())
        })?;
        self.for_each_run(&mut |mapping, pages, _| {
            if mapping.link().get() == 0 {
                enter(NonNull::from(mapping).cast())?;
            }
            mapping.link().add(pages);
            Ok(())
        })?;
        self.for_each_run(&mut |mapping, _, address| {
            if mapping.link().get() != mapping.pages() {
                return Err(Violation {
                    rule: "a mapping does not count the pages that point to it",
                    address,
                    value: mapping.pages(),
                });
            }
            Ok(())
        })
    }

    fn for_each_run(
        &self,
        visit: &mut dyn FnMut(&crate::tree::mapping::Mapping, u64, u64) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let mut at = 0;
        while let Some(run) = self.tree().next(at) {
            // SAFETY: read in the caller's section.
            if let SlotState::Live(mapping) = unsafe { run.word.content() } {
                visit(mapping, run.pages.len(), run.pages.start * PAGE_SIZE)?;
            }
            at = run.pages.end;
        }
        Ok(())
    }
}
