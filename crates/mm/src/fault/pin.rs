//! Taking a page of a program for long, to read or write it beside the program: what Linux
//! calls `pin_user_pages`. A [`UserPage`] keeps its frame what it is until it is dropped,
//! whatever becomes of the mapping.
//!
//! # What a pin promises
//!
//! * The frame is the page that the program sees, and stays it until the program unmaps or
//!   discards the page: a store by either is seen by both. So a page of private memory is
//!   pinned only while it is *exclusive*: one that is shared since a fork is unshared
//!   first, by a read as well. Copy-on-write leaves an exclusive page where it is, and fork
//!   copies a pinned page for the child instead of sharing it ([`crate::ops`]).
//! * It is not freed under the pin: not by `munmap`, which leaves the frame to the last
//!   pin; not by `MADV_FREE`, which leaves pinned pages alone ([`crate::reclaim::lazyfree`]).
//! * A page that was pinned to be written is dirty, from the pin on: nobody says that a pinned
//!   page is clean, so there is nothing left to be said when the pin ends.
//!
//! The shared zero page is not counted: nobody writes it, and it never goes.
//!
//! # How
//!
//! Without a lock: find the mapping, walk, look whether the entry lets the access through,
//! claim it as present, and validate as any fault does (step 7); then the page is counted, and
//! the claim given up. Whoever takes pages away, forks, or moves them has made the mapping
//! *changing* before it looks at the entries, or claims them itself, and looks for pins after
//! that: either the pin sees the change and withdraws, or it is seen. Hardware and other
//! readers use the page meanwhile. What the entry does not let through is a fault like all
//! others, and then a new try.
//!
//! The claim is what makes it cheap for everybody else: a count that could come at any moment,
//! to be taken back after another look (Linux's fast way), would make every unmapping of
//! every page change its count by a read-modify-write. So only who pins has to.
//!
//! Written lines: the entry, twice; the frame's descriptor, and again when the pin ends.
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

/// What a page is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// To be read now: what the page holds, and the zero page or a file's page in private
    /// memory, which the program's next store there replaces, will do.
    ToRead,
    /// To be read for long: what the program stores is seen.
    ToReadForLong,
    /// To be written, or read and written.
    ToWrite,
}

impl Taken {
    /// Whether a mapping allows it. Reading takes a mapping that says so, as on Linux,
    /// though hardware can read what it can write or execute.
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
/// It needs no address space: the one that it was taken from may have ended.
pub struct UserPage<M: Machine> {
    memory: &'static Memory<M>,
    frame: Frame,
}

impl<M: Machine> UserPage<M> {
    /// The page's frame. To be written only if it was taken for that.
    pub fn frame(&self) -> Frame {
        self.frame
    }
}

impl<M: Machine> Drop for UserPage<M> {
    fn drop(&mut self) {
        let machine = self.memory.machine();
        let source = machine.frames();
        if self.frame != source.zero_frame() && source.descriptor(self.frame).unpin() {
            // Nothing has mapped it since its last mapping's flush.
            source.free(machine.cpu(), self.frame);
        }
    }
}

/// How a try to pin ended that pinned nothing.
enum Missed {
    /// The page has to be brought, or made writable.
    Fault,
    /// Somebody else was at work.
    Retry(Retry),
    /// It cannot be pinned.
    Refused(Outcome),
}

impl From<Retry> for Missed {
    fn from(why: Retry) -> Self {
        Missed::Retry(why)
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Pins pages from the one at `address` on, one for each place in `into`. How many were
    /// pinned: less than all of them if one could not be.
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

    /// Pins the page at `address`. A stack does not grow by this.
    ///
    /// # Errors
    /// How a fault on it ends: never [`Outcome::Resolved`]. A page that is pinned
    /// [`crate::MOST_PINS`] times already is out of memory, as on Linux; a device's is
    /// [`Outcome::Bus`].
    pub fn pin(&self, address: u64, taken: Taken) -> Result<UserPage<M>, Outcome> {
        if address >= self.layout().end {
            return Err(Outcome::Segv(SegvCode::MapErr));
        }
        let page = Page::containing(address);
        let mut prepared = FaultState::new(self.memory(), ());
        let mut backoff = Backoff::new();
        loop {
            match self.try_to_pin(page, taken, &mut prepared) {
                Ok(pinned) => return Ok(pinned),
                Err(Missed::Refused(outcome)) => return Err(outcome),
                Err(Missed::Fault) => match self.fault(page.address(), taken.access()) {
                    Outcome::Resolved => backoff = Backoff::new(),
                    error => return Err(error),
                },
                Err(Missed::Retry(Retry::Wait(blocker))) => {
                    if let Some(outcome) = self.wait_for(blocker, page, &mut prepared) {
                        return Err(outcome);
                    }
                    backoff.rest(self.machine());
                }
                Err(Missed::Retry(_)) if backoff.turns() >= PIN_TRIES => {
                    // A writer is at work there: it waits for nothing that is held here.
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
        // By validation alone, whatever the policy of faults is: writers know no difference.
        let Some(hold) = VmaRef::find(&self.maps, page, Mode::Locked, &section)? else {
            return Err(Missed::Refused(Outcome::Segv(SegvCode::MapErr)));
        };
        if !taken.is_allowed(hold.protection()) {
            return Err(Missed::Refused(Outcome::Segv(SegvCode::AccErr)));
        }
        if hold.is_device() {
            // Nobody could be told that its page is held.
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
            // One has come since the mapping was found; its frame has no descriptor.
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

    /// Whether the program's next store to a page goes to another one.
    fn must_unshare(&self, at: &PteRef<'_>, frame: Frame, taken: Taken) -> bool {
        let flags = self.machine().frames().descriptor(frame).flags();
        if !self.tables().is_zero_page(frame) && flags.has(Flags::ANONYMOUS) {
            return !flags.has(Flags::EXCLUSIVE);
        }
        taken == Taken::ToReadForLong && !at.vma.is_shared()
    }

    /// Replaces a page that is present by one that is this space's alone.
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

    /// Claims the entry as present, validates, and adds a pin to the page's count.
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
                // Not if the store has let go of it: the next try finds out.
                return descriptor.pin().map_err(why);
            }
            // Forked since the look, if not, and over again.
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
