//! The state of each page, as `/proc/PID/pagemap` shows it.
//!
//! The tables are read inside read sections, concurrently with writers and without a lock. The state of a page
//! was true at some moment of the call. A claimed entry is waited for.

use faultless_frames::Flags;
use faultless_paging::{Frame, PAGE_SIZE, Page, Pages, Walk};
use faultless_sync::reclaim::Section;

use crate::base::machine::Machine;
use crate::space::AddressSpace;
use crate::table::huge_share::mappings_of;
use crate::tree::mapping::Attributes;

/// The state of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageState {
    /// Its frame, if it has one, including the shared zero page. Also set where no access may reach the page.
    pub frame: Option<Frame>,
    /// Whether it is a page of a memory object.
    pub file: bool,
    /// Whether no other entry maps it.
    pub exclusive: bool,
    /// Whether it was written, or newly mapped, since soft-dirty bits were cleared.
    pub soft_dirty: bool,
    /// Whether it is a guard, where no access may bring a page.
    pub guard: bool,
    /// Whether stores to it are reported to a userfaultfd.
    pub reports_writes: bool,
    /// Whether its entry keeps something without a page: that stores are reported, or that accesses are errors.
    pub marked: bool,
    /// The device and the slot to which it was swapped out.
    pub swapped: Option<(u32, u64)>,
}

impl PageState {
    /// Below the slot's number.
    const DEVICE_BITS: u32 = 5;
    const SOFT_DIRTY: u64 = 1 << 55;
    const EXCLUSIVE: u64 = 1 << 56;
    const REPORTS_WRITES: u64 = 1 << 57;
    const GUARD: u64 = 1 << 58;
    const FILE: u64 = 1 << 61;
    const SWAPPED: u64 = 1 << 62;
    const PRESENT: u64 = 1 << 63;

    /// Returns the state in the format of Linux's `pagemap`, with the frame's number, or the device's and
    /// the slot's, only if `with_frame`.
    pub fn pagemap(&self, with_frame: bool) -> u64 {
        let bits = [
            (self.soft_dirty, Self::SOFT_DIRTY),
            (self.exclusive, Self::EXCLUSIVE),
            // Newer Linux shows both that it is a guard and how it is kept: as a swap entry.
            (self.guard, Self::GUARD | Self::SWAPPED),
            (self.reports_writes, Self::REPORTS_WRITES),
            (self.marked, Self::SWAPPED),
            (self.file, Self::FILE),
            (self.frame.is_some(), Self::PRESENT),
            (self.swapped.is_some(), Self::SWAPPED),
        ];
        let set = bits.iter().filter(|(is_set, _)| *is_set);
        let flags = set.fold(0, |all, (_, bit)| all | bit);
        let place = match (self.frame, self.swapped) {
            (Some(frame), _) => frame.0,
            (None, Some((device, slot))) => slot << Self::DEVICE_BITS | u64::from(device),
            (None, None) => 0,
        };
        match with_frame {
            true => flags | place & (Self::SOFT_DIRTY - 1),
            false => flags,
        }
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Returns the state of the page at an address; the default where nothing is mapped.
    pub fn page_state(&self, address: u64) -> PageState {
        let mut state = PageState::default();
        let page = address / PAGE_SIZE;
        self.for_each_state(Pages::new(page, page + 1), &mut |_, seen| state = seen);
        state
    }

    /// Writes the state of the pages from the number `page` on, in the format of Linux's `pagemap`. Returns how
    /// many were written: fewer than fit into `to` only at the end of user memory. To be called for a few
    /// hundred pages at a time, because all are read in one read section.
    pub fn pagemap(&self, page: u64, to: &mut [u64], with_frames: bool) -> usize {
        let end = self.layout().end / PAGE_SIZE;
        let stop = page.saturating_add(to.len() as u64).min(end);
        let Some(count) = stop.checked_sub(page) else {
            return 0;
        };
        to.fill(0);
        self.for_each_state(Pages::new(page, stop), &mut |at, state| {
            if let Some(word) = to.get_mut((at - page) as usize) {
                *word = state.pagemap(with_frames);
            }
        });
        count as usize
    }

    /// Calls `visit` for every page with a state other than the default.
    fn for_each_state(&self, pages: Pages, visit: &mut dyn FnMut(u64, PageState)) {
        let limit = pages.end.min(self.layout().end / PAGE_SIZE);
        let section = self.memory().enter();
        // The previous run: its end, its attributes, and whether the mapping to which it belongs is new.
        let mut last: Option<(u64, &Attributes, bool)> = None;
        // The heap is a mapping of its own.
        let cut = self.heap().0 / PAGE_SIZE;
        let mut at = pages.start;
        while at < limit {
            let stop = if at < cut { limit.min(cut) } else { limit };
            let Some(run) = self.tree().next_until(at, stop) else {
                at = stop;
                continue;
            };
            at = run.pages.end;
            // SAFETY: read in this section.
            let Some(mapping) = (unsafe { run.word.mapping() }) else {
                continue;
            };
            let attributes = mapping.attributes();
            let start = run.pages.start;
            let is_new = match last {
                Some((end, like, is_new)) if end == start && like == attributes && start != cut => {
                    is_new
                }
                _ => self.is_line_new(&run, attributes),
            };
            last = Some((at, attributes, is_new));
            for page in run.pages.start..run.pages.end {
                let mut state = self.state_of(Page(page), &section);
                state.soft_dirty |= is_new;
                if state != PageState::default() {
                    visit(page, state);
                }
            }
        }
    }

    /// Returns the state that a page's entry shows.
    fn state_of(&self, page: Page, section: &Section<'_>) -> PageState {
        match self.tables().look(page, section) {
            Walk::Leaf { entry, .. } => self.state_in(self.tables().settled(entry)),
            Walk::Huge { value, .. } => self.state_in(self.tables().part_of(value, page.0)),
            _ => PageState::default(),
        }
    }

    fn state_in(&self, value: u64) -> PageState {
        let format = Self::FORMAT;
        // Linux reports nothing for the pages of a device.
        if value == 0 || format.is_guard(value) || format.is_device(value) {
            return PageState {
                guard: format.is_guard(value),
                ..PageState::default()
            };
        }
        if let Some(swapped) = self.tables().swap_of(value) {
            return PageState {
                swapped: Some((swapped.device, swapped.slot)),
                soft_dirty: swapped.is_soft_dirty,
                reports_writes: swapped.reports_writes,
                ..PageState::default()
            };
        }
        if !format.has_page(value) {
            return PageState {
                reports_writes: format.reports_writes(value),
                marked: true,
                ..PageState::default()
            };
        }
        let frame = format.frame(value);
        let mut state = PageState {
            frame: Some(frame),
            soft_dirty: format.is_soft_dirty(value),
            reports_writes: format.reports_writes(value),
            ..PageState::default()
        };
        if let Some(descriptor) = self.tables().counted(value) {
            state.file = descriptor.flags().has(Flags::FILE);
            state.exclusive = match state.file {
                true => descriptor.map_count() == 1,
                false => mappings_of(self.machine().frames(), frame) == 1,
            };
        }
        state
    }
}
