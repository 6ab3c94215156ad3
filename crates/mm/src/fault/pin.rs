//! Long-term pins of user pages, so that a kernel or a device can read or write them beside the program
//! (Linux: `pin_user_pages`). A [`UserPage`] keeps its frame the same page until it is dropped, whatever
//! happens to the mapping.
//!
//! # What a pin promises
//!
//! * The frame is the page that the program sees, until the program unmaps or discards it: each sees the
//!   other's stores. A page of private memory is therefore pinned only while it is *exclusive*. A page that
//!   is shared since a fork is unshared first, for a read as well. Copy-on-write leaves an exclusive page in
//!   place, and fork copies a pinned page for the child instead of sharing it ([`crate::ops`]).
//! * The frame is not freed under the pin. `munmap` leaves it to the last pin, and `MADV_FREE` skips pinned
//!   pages ([`crate::reclaim::lazyfree`]).
//! * A page that is pinned for writing is dirty from the pin on. A pinned page is never marked clean, so
//!   nothing remains to be marked when the pin ends.
//!
//! The shared zero page is not counted: it is never written and never freed.
//!
//! # How
//!
//! Without a lock: find the mapping, walk, check that the entry permits the access, claim it as present, and
//! validate as any fault does (step 7). Then the pin is counted and the claim released. A zap, a fork or a
//! move first makes the mapping *changing* or claims the entries, and looks for pins after that. So either
//! the pin sees the change and withdraws, or the other side sees the pin. Hardware and other readers use the
//! page meanwhile. If the entry does not permit the access, the pin takes an ordinary fault and tries again.
//!
//! The claim moves the cost to the pin. On Linux's fast path a count comes at any moment, and is taken back
//! after another look. So every unmap of every page needs a read-modify-write. Here only a pin needs one.
//!
//! *Writes*: the entry, twice; the frame's descriptor, and again when the pin ends.
//!
//! *Models*: loom `fault/pin.rs`, shuttle `fault/pin.rs`.

use faultless_frames::{Flags, FrameSource, NotPinned};
use faultless_paging::{Access, Frame, Page, Pages, Protection, Walk};
use faultless_sync::{Backoff, Mutant, mutant};

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::fault::state::FaultState;
use crate::fault::{Outcome, PteRef, SegvCode};
use crate::lock::vma::{Mode, VmaRef};
use crate::space::AddressSpace;
use crate::table::retry::{Blocker, Retry};
use crate::table::rss::RssKind;
use crate::tune::PIN_TRIES;

/// The purpose of a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// To read now. The current content is enough: this may be the zero page, or a file's page in private
    /// memory that the program's next store replaces.
    ToRead,
    /// To read for long: the program's later stores are seen.
    ToReadForLong,
    /// To write, or to read and write.
    ToWrite,
}

impl Taken {
    /// Whether a mapping allows it. Reading requires read permission, as on Linux, though hardware can read
    /// what it can write or execute.
    fn is_allowed(self, protection: Protection) -> bool {
        match self {
            Taken::ToWrite => protection.write,
            Taken::ToRead | Taken::ToReadForLong => protection.read,
        }
    }

    fn access(self) -> Access {
        match self {
            Taken::ToWrite => Access::Write,
            Taken::ToRead | Taken::ToReadForLong => Access::Read,
        }
    }
}

/// A page of a program, pinned until this is dropped.
///
/// It needs no address space: its own may have ended.
pub struct UserPage<M: Machine> {
    memory: &'static Memory<M>,
    frame: Frame,
}

impl<M: Machine> UserPage<M> {
    /// Returns the page's frame. It may be written only if it was pinned for that.
    pub fn frame(&self) -> Frame {
        self.frame
    }
}

impl<M: Machine> Drop for UserPage<M> {
    fn drop(&mut self) {
        let machine = self.memory.machine();
        let source = machine.frames();
        if self.frame != source.zero_frame() && source.descriptor(self.frame).unpin() {
            // Nothing has mapped it since the flush of its last mapping.
            source.free(machine.cpu(), self.frame);
        }
    }
}

/// Why a try pinned nothing.
enum Missed {
    /// A fault has to map the page, or make it writable.
    Fault,
    /// Another operation was at work on the entry or the mapping.
    Retry(Retry),
    /// The page cannot be pinned.
    Refused(Outcome),
}

impl From<Retry> for Missed {
    fn from(why: Retry) -> Self {
        Missed::Retry(why)
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Pins the pages from the one at `address` on, one for each slot of `into`. Returns how many were
    /// pinned: fewer if a page could not be.
    ///
    /// # Errors
    /// How the fault on the first page ends, if it could not be pinned.
    pub fn pin_pages(
        &self,
        address: u64,
        taken: Taken,
        into: &mut [Option<UserPage<M>>],
    ) -> Result<usize, Outcome> {
        let mut page = Page::containing(address);
        for (done, place) in into.iter_mut().enumerate() {
            self.machine().poll();
            match self.pin(page.address(), taken) {
                Ok(pinned) => *place = Some(pinned),
                Err(error) if done == 0 => return Err(error),
                Err(_) => return Ok(done),
            }
            page = Page(page.0 + 1);
        }
        Ok(into.len())
    }

    /// Pins the page at `address`. This grows no stack.
    ///
    /// # Errors
    /// How a fault on the page ends: never [`Outcome::Resolved`]. A page that is pinned [`crate::MOST_PINS`]
    /// times already is out of memory, as on Linux. A device's page is [`Outcome::Bus`].
    pub fn pin(&self, address: u64, taken: Taken) -> Result<UserPage<M>, Outcome> {
        if address >= self.layout().end {
            return Err(Outcome::Segv(SegvCode::MapErr));
        }
        let page = Page::containing(address);
        let mut prepared = FaultState::new(self.memory(), (), true);
        let mut backoff = Backoff::new();
        loop {
            match self.try_to_pin(page, taken, &mut prepared) {
                Ok(pinned) => return Ok(pinned),
                Err(Missed::Refused(outcome)) => return Err(outcome),
                Err(Missed::Fault) => match self.fault_by_kernel(page.address(), taken.access()) {
                    Outcome::Resolved => backoff = Backoff::new(),
                    error => return Err(error),
                },
                Err(Missed::Retry(Retry::Wait(blocker))) => {
                    let of = (page.address(), taken.access());
                    if let Some(outcome) = self.wait_for(blocker, of, &mut prepared) {
                        return Err(outcome);
                    }
                    backoff.rest(self.machine());
                }
                Err(Missed::Retry(_)) if backoff.turns() >= PIN_TRIES => {
                    // A writer is at work there. It waits for nothing that is held here.
                    drop(self.maps.hold_range(Pages::new(page.0, page.0 + 1)));
                    backoff = Backoff::new();
                }
                Err(Missed::Retry(_)) => backoff.rest(self.machine()),
            }
        }
    }

    fn try_to_pin(
        &self,
        page: Page,
        taken: Taken,
        prepared: &mut FaultState<M, ()>,
    ) -> Result<UserPage<M>, Missed> {
        let section = self.memory().enter();
        // By validation alone, whatever the policy: writers run the same protocol under every policy.
        let Some(hold) = VmaRef::find(&self.maps, page, Mode::Locked, &section)? else {
            return Err(Missed::Refused(Outcome::Segv(SegvCode::MapErr)));
        };
        if !taken.is_allowed(hold.protection()) {
            return Err(Missed::Refused(Outcome::Segv(SegvCode::AccErr)));
        }
        if hold.is_device() {
            // A device's page has no count, so a revocation could not see the pin.
            return Err(Missed::Refused(Outcome::Bus));
        }
        let walked = self.tables().descend(page, &section);
        let (entry, value, link) = match walked {
            Walk::Leaf { entry, value, link } => (entry, value, link),
            Walk::Missing { .. } => return Err(Missed::Fault),
            Walk::Busy | Walk::Huge { .. } => return Err(Retry::TableChanged.into()),
        };
        if link.is_frozen() {
            return Err(Retry::Wait(Blocker::Fork).into());
        }
        if Self::FORMAT.is_claimed(value) {
            return Err(Retry::EntryClaimed.into());
        }
        if Self::FORMAT.is_device(value) {
            // A device's page was mapped after the mapping was found; its frame has no descriptor.
            return Err(Retry::MappingChanged.into());
        }
        if !Self::FORMAT.permits(value, taken.access()) {
            return Err(Missed::Fault);
        }
        let at = PteRef {
            entry,
            value,
            link,
            vma: &hold,
        };
        let frame = Self::FORMAT.frame(value);
        if self.must_unshare(&at, frame, taken) {
            self.unshare(&at, page, prepared)?;
            return Err(Retry::PageChanged.into());
        }
        if !self.tables().is_zero_page(frame) {
            self.count_pin(&at, page, frame, taken)?;
        }
        Ok(UserPage {
            memory: self.memory(),
            frame,
        })
    }

    /// Whether the program's next store to the page would go to another frame.
    fn must_unshare(&self, at: &PteRef<'_>, frame: Frame, taken: Taken) -> bool {
        let flags = self.machine().frames().descriptor(frame).flags();
        if !self.tables().is_zero_page(frame) && flags.has(Flags::ANONYMOUS) {
            return !flags.has(Flags::EXCLUSIVE);
        }
        taken == Taken::ToReadForLong && !at.vma.is_shared()
    }

    /// Replaces a present page by one that only this space maps.
    fn unshare(
        &self,
        at: &PteRef<'_>,
        page: Page,
        prepared: &mut FaultState<M, ()>,
    ) -> Result<(), Retry> {
        let source = self.machine().frames();
        let frame = Self::FORMAT.frame(at.value);
        if !self.tables().is_zero_page(frame) {
            return self.copy_page(at, page, source.descriptor(frame), prepared);
        }
        let new = prepared.page()?;
        source.descriptor(new).set_anonymous(self.number(), page.0);
        self.tables().transact(at, || {
            prepared.page_used();
            self.tables().flush_page(page, at.value);
            let protection = at.vma.protection();
            let leaf = Self::FORMAT.leaf_of(new, protection.write, protection, true);
            Ok(self.tables().with_tlb_owner(leaf))
        })?;
        let cpu = self.machine().cpu();
        self.tables().rss.came(cpu, RssKind::Anonymous);
        Ok(())
    }

    /// Claims the entry as present, validates, and counts the pin.
    fn count_pin(
        &self,
        at: &PteRef<'_>,
        page: Page,
        frame: Frame,
        taken: Taken,
    ) -> Result<(), Retry> {
        let descriptor = self.machine().frames().descriptor(frame);
        let why = |why| match why {
            NotPinned::Gone => Retry::PageChanged,
            NotPinned::TooOften => Retry::Wait(Blocker::Memory),
        };
        let count = || {
            if descriptor.flags().has(Flags::FILE) {
                // This fails if the object has released the page: the next try finds out.
                return descriptor.pin().map_err(why);
            }
            // If not alone, the page was forked since the look: try again.
            if !self.is_alone(descriptor, page) && !mutant(Mutant::SharingNotChecked) {
                return Err(Retry::PageChanged);
            }
            descriptor.pin_exclusive().map_err(why)
        };
        let dirty = match taken {
            Taken::ToWrite => Self::FORMAT.dirty,
            _ => 0,
        };
        let tables = self.tables();
        tables.transact_present(at, || count().map(|()| move |value| value | dirty))
    }
}
