//! The fault engine: resolves every page fault, in the ten steps of ARCHITECTURE.md.
//!
//! There is one engine. Policies differ only in how the mapping is found and held (`VmaRef`). A try ends in
//! an outcome or is *withdrawn* with a reason. A speculative fault that exhausts its tries holds its page
//! against writers. From then on only the entry itself and its tables can change.
//!
//! [`crate::fault::state`] has what a fault prepares before it claims anything. [`crate::fault::kinds::file`]
//! maps pages of memory objects. [`crate::fault::kinds::cow`] handles writes to pages that `fork` may have
//! shared.
//!
//! *Writes*: this CPU's own lines, the frame, its descriptor, and the line of the entry; apart from these,
//! allocator batches.
//!
//! *Models*: loom `fault/engine.rs`, shuttle `fault/faults.rs`.

mod check_access;
pub(crate) mod kinds;
pub(crate) mod pin;
pub(crate) mod state;
pub(crate) mod trace;

use faultless_frames::FrameSource;
use faultless_paging::{Access, PAGE_SIZE, Page, Pte, Walk};
use faultless_sync::{Backoff, Mutant, mutant};
use faultless_trace::{Counter, Detours, How, Kind, Tracer};

use crate::base::machine::Machine;
use crate::fault::state::{FaultState, Origin};
use crate::fault::trace::{FaultTrace, TraceSink, Untraced};
use crate::lock::vma::{Mode, VmaRef};
use crate::reclaim::lazyfree::take_lazyfree;
use crate::space::AddressSpace;
use crate::table::huge::HUGE_LEVEL;
use crate::table::retry::{Blocker, Retry};
use crate::table::rss::RssKind;
use crate::table::txn;
use crate::tune::FAULT_TRIES;

/// An entry as a fault found it.
pub(crate) type PteRef<'s> = txn::PteRef<'s, VmaRef<'s>>;

/// How a fault ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The access can be retried.
    Resolved,
    /// The access is invalid: SIGSEGV with this code.
    Segv(SegvCode),
    /// No page backs the address, or it could not be read in: SIGBUS (`BUS_ADRERR`).
    Bus,
    /// No frame is available for the page.
    OutOfMemory,
    /// The page was poisoned by the handler of a userfaultfd: SIGBUS (`BUS_MCEERR_AR`).
    Poisoned,
    /// A signal has ended the wait for the handler of a userfaultfd. The access can be retried once the signal is
    /// delivered; an access by the kernel fails.
    Interrupted,
}

/// The `si_code` of a SIGSEGV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum SegvCode {
    /// No mapping at the address.
    MapErr = 1,
    /// The mapping does not allow the access.
    AccErr = 2,
    /// The mapping allows only execution, and the machine refuses other accesses ([`Machine::refuses_data`]).
    KeyErr = 4,
}

impl<M: Machine> AddressSpace<M> {
    /// Resolves a fault at a byte address, or says why the access is invalid.
    ///
    /// A trap handler calls this, and so do the kernel's own accesses to user memory and POPULATE. Not from
    /// interrupt context, and with no lock held.
    #[inline]
    pub fn fault(&self, address: u64, access: Access) -> Outcome {
        self.fault_by(address, access, false)
    }

    /// The same for an access that the kernel makes for the program: only the end of the program interrupts its
    /// wait for the handler of a userfaultfd.
    pub fn fault_by_kernel(&self, address: u64, access: Access) -> Outcome {
        self.fault_by(address, access, true)
    }

    #[inline]
    fn fault_by(&self, address: u64, access: Access, by_kernel: bool) -> Outcome {
        if Detours::any() {
            return self.fault_aside(address, access, by_kernel);
        }
        let mut prepared = FaultState::new(self.memory(), (), by_kernel);
        let outcome = self.resolve(address, access, &mut prepared);
        prepared.end();
        outcome
    }

    /// As [`AddressSpace::fault`], with a trace or with all that huge pages need. The engine is compiled for each, so that
    /// a fault without them pays nothing.
    #[cold]
    #[inline(never)]
    fn fault_aside(&self, address: u64, access: Access, by_kernel: bool) -> Outcome {
        if Tracer::any_is_on() {
            return self.fault_recorded(address, access, by_kernel);
        }
        let mut prepared = FaultState::new(self.memory(), Untraced, by_kernel);
        let outcome = self.resolve(address, access, &mut prepared);
        prepared.end();
        outcome
    }

    #[inline(never)]
    fn fault_recorded(&self, address: u64, access: Access, by_kernel: bool) -> Outcome {
        let start = self.trace_start();
        let mut prepared = FaultState::new(self.memory(), FaultTrace::new(), by_kernel);
        let outcome = self.resolve(address, access, &mut prepared);
        prepared.trail.end(self, start, address, outcome);
        outcome
    }

    #[inline]
    pub(crate) fn resolve<N: TraceSink>(
        &self,
        address: u64,
        access: Access,
        prepared: &mut FaultState<M, N>,
    ) -> Outcome {
        if address >= self.layout().end {
            self.memory().count(Counter::Faults);
            return self.refuse(Mode::of(self.policy()), SegvCode::MapErr, address);
        }
        let page = Page::containing(address);
        let mut backoff = Backoff::new();
        let mut mode = Mode::of(self.policy());
        let mut lock = mode.lock(&self.maps, page);
        self.memory().count(Counter::Faults);
        loop {
            let why = match self.attempt(page, access, mode, prepared) {
                Ok(outcome) => return outcome,
                Err(why) => why,
            };
            if let Retry::Wait(blocker) = why
                && blocker != Blocker::Fork
            {
                drop(lock.take());
                if let Some(outcome) = self.wait_for(blocker, (address, access), prepared) {
                    return self.fails(mode, outcome);
                }
                backoff.rest(self.machine());
                lock = mode.lock(&self.maps, page);
                continue;
            }
            if why == Retry::Wait(Blocker::Fork) {
                self.tables().prioritise_copy(page);
            }
            if lock.is_none() && backoff.turns() >= FAULT_TRIES {
                self.fall_back(mode, why, address, &mut prepared.trail);
                mode = Mode::Locked;
                lock = mode.lock(&self.maps, page);
                continue;
            }
            if mode.is_speculative() {
                self.memory().count(Counter::SpfRetry);
            }
            backoff.rest(self.machine());
        }
    }

    /// Waits, with nothing held, for what blocks a fault. Returns how the fault ends if waiting is in vain.
    #[cold]
    pub(crate) fn wait_for<N>(
        &self,
        blocker: Blocker,
        (address, access): (u64, Access),
        prepared: &mut FaultState<M, N>,
    ) -> Option<Outcome> {
        let page = Page::containing(address);
        match blocker {
            Blocker::Memory if self.finds_memory(prepared) => None,
            Blocker::Memory => Some(Outcome::OutOfMemory),
            Blocker::Swap => match self.wait_for_swap(page, prepared) {
                Some(Outcome::OutOfMemory) if self.finds_memory(prepared) => None,
                ended => {
                    if let Some(swapped) = prepared.held_slot().filter(|_| prepared.was_read()) {
                        self.read_ahead(page, &swapped);
                    }
                    ended
                }
            },
            Blocker::Page => match prepared.wait_for_page() {
                Some(Outcome::OutOfMemory) if self.finds_memory(prepared) => None,
                ended => ended,
            },
            Blocker::Handler => self.await_handler(address, access, prepared),
            Blocker::Zap => {
                self.await_zaps_below_stack(page);
                None
            }
            Blocker::Fork => {
                self.tables().prioritise_copy(page);
                None
            }
        }
    }

    /// Reads a page that was swapped out.
    fn wait_for_swap<N>(&self, page: Page, prepared: &mut FaultState<M, N>) -> Option<Outcome> {
        let start = self.memory().trace_start();
        let ended = prepared.read_swapped();
        self.memory()
            .trace_end(Kind::SwapIn, start, page.address(), PAGE_SIZE, 0);
        ended
    }

    /// Looks for memory harder, with nothing held. Whether another try is worth it.
    #[cold]
    fn finds_memory<N>(&self, prepared: &mut FaultState<M, N>) -> bool {
        // The next try needs single frames.
        prepared.free_huge();
        match self.memory().is_reclaiming() {
            true => self.memory().reclaim_some() || take_lazyfree(self),
            false => prepared.find_memory() || take_lazyfree(self),
        }
    }

    /// Ends a try on a huge page.
    #[cold]
    #[inline(never)]
    fn ends_huge(&self, mode: Mode, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Resolved => self.done(mode, outcome),
            error => self.fails(mode, error),
        }
    }

    /// Returns the access that a fault on an entry with this value has to resolve: a read finds no page there, stores
    /// are allowed, and the instruction also stores.
    #[inline(always)]
    fn resolved_as<N: TraceSink>(
        &self,
        access: Access,
        at: &PteRef<'_>,
        page: Page,
        prepared: &mut FaultState<M, N>,
    ) -> Access {
        let may_store = M::READS_MAY_WRITE && !N::FORCES && access == Access::Read;
        if !may_store || !at.vma.protection().write {
            return access;
        }
        if prepared.origin == Origin::Program && !Self::FORMAT.permits(at.value, access) {
            self.ask_for_stores(page, prepared);
        }
        prepared.origin.access::<M>(access)
    }

    /// Asks the machine about the instruction.
    #[cold]
    fn ask_for_stores<N>(&self, page: Page, prepared: &mut FaultState<M, N>) {
        prepared.origin = match self.machine().read_will_write() {
            true => {
                self.memory().count(Counter::RmwFaults);
                self.event(Kind::RmwFault, page.address(), 0);
                Origin::Writes
            }
            false => Origin::Reads,
        };
    }

    /// Makes one try: steps 1 to 10.
    fn attempt<N: TraceSink>(
        &self,
        page: Page,
        access: Access,
        mode: Mode,
        prepared: &mut FaultState<M, N>,
    ) -> Result<Outcome, Retry> {
        // 1. Enter a read section: nothing found below is reused before it ends.
        let section = self.memory().enter();

        // 2. Find the mapping, and hold it as the policy says.
        let Some(vma) = VmaRef::find(&self.maps, page, mode, &section)? else {
            drop(section);
            return self.not_mapped(page, access, mode);
        };

        // 3. Check. What a live mapping does not allow is an error, now.
        let may_be_forced = || N::FORCES && vma.may_be_forced(access);
        if let Some(code) = self.check_access(vma.protection(), access)
            && !may_be_forced()
        {
            return Ok(self.refuse(mode, code, page.address()));
        }

        // 4. Walk. Missing tables are installed by the same protocol as pages.
        let mut is_new = false;
        let mut access = access;
        let at = loop {
            let (entry, value, link, level) = match self.tables().look(page, &section) {
                Walk::Leaf { entry, value, link } => (entry, value, link, 0),
                Walk::Missing { entry, link, level } => (entry, 0, link, level),
                Walk::Huge {
                    entry, value, link, ..
                } => (entry, value, link, HUGE_LEVEL),
                Walk::Busy => return Err(Retry::TableChanged),
            };
            let at = PteRef {
                entry,
                value,
                link,
                vma: &vma,
            };
            access = self.resolved_as(access, &at, page, prepared);
            if level == 0 {
                break at;
            }
            if level == HUGE_LEVEL
                && let Some(outcome) = self.resolve_huge(&at, page, access, prepared)?
            {
                return Ok(self.ends_huge(mode, outcome));
            }
            if value != 0 {
                // The huge page was split.
                continue;
            }
            self.install_table(&at, prepared)?;
            prepared.trail.has_table();
            is_new = true;
        };

        // The mutant still waits where the entry permits the access, so that it does not fault there forever.
        let format = Self::FORMAT;
        if at.link.is_frozen()
            && (!mutant(Mutant::FrozenIgnored) || format.permits(at.value, access))
        {
            return Err(Retry::Wait(Blocker::Fork));
        }
        if N::SEEKS_HUGE
            && at.value == 0
            && !is_new
            && let Some(outcome) =
                self.map_huge_over_table(&vma, page, access, prepared, &section)?
        {
            return Ok(self.ends_huge(mode, outcome));
        }

        // 5. to 9. Prepare, claim, validate, complete and publish, depending on the entry.
        let is_write = access == Access::Write;
        match format.decode(at.value, 0) {
            Pte::Claimed => return Err(Retry::EntryClaimed),
            // One call for both, so that it is compiled in place.
            Pte::Empty | Pte::Marker if vma.is_special() => {
                match self.map_file_page(&at, page, access, prepared, &section)? {
                    Outcome::Resolved => {}
                    error => return Ok(self.fails(mode, error)),
                }
            }
            Pte::Empty | Pte::Marker if is_write => {
                self.map_fresh_page(&at, page, prepared)?;
                prepared.trail.ends(How::FirstTouch);
            }
            Pte::Empty | Pte::Marker => {
                self.map_zero_page::<N>(&at)?;
                prepared.trail.ends(How::ZeroPage);
            }
            // Another fault was faster, or the TLB was stale.
            _ if format.permits(at.value, access)
                || N::FORCES && self.suffices(at.value, access) =>
            {
                self.mark_touched(&at, access)?;
                prepared.count_wait();
                prepared.trail.ends(How::Spurious);
            }
            Pte::Page(_) | Pte::Hidden(_) if is_write && format.reports_writes(at.value) => {
                return Err(self.report_write(&at, prepared));
            }
            Pte::Page(frame) if is_write && self.tables().is_zero_page(frame) => {
                self.map_fresh_page(&at, page, prepared)?;
                prepared.trail.ends(How::ZeroReplaced);
            }
            Pte::Hidden(frame) if is_write && N::FORCES && self.tables().is_zero_page(frame) => {
                self.map_fresh_page(&at, page, prepared)?;
                prepared.trail.ends(How::ZeroReplaced);
            }
            Pte::Page(_) if is_write => self.write_page(&at, page, prepared)?,
            Pte::Hidden(_) if is_write && N::FORCES => self.write_page(&at, page, prepared)?,
            // The mapping allows what the entry does not: a writer is changing it.
            Pte::Page(_) | Pte::Hidden(_) => return Err(Retry::MappingChanged),
            Pte::Guard => return self.meet_guard(&at, mode, page),
            Pte::Swap(_) => match self.swap_in(&at, page, access, prepared)? {
                Outcome::Resolved => {}
                error => return Ok(self.fails(mode, error)),
            },
            Pte::Poison => {
                at.validate()?;
                return Ok(self.fails(mode, Outcome::Poisoned));
            }
            // No operation puts these at this level. As on Linux, an invalid entry is SIGBUS.
            Pte::Table(_) | Pte::Huge(_) => {
                return Ok(self.fails(mode, Outcome::Bus));
            }
        }

        // 10. Count, on this CPU's lines.
        Ok(self.done(mode, Outcome::Resolved))
    }

    /// Marks a present entry, which permits the access, as used or written, where hardware leaves that to software. The
    /// entry is not claimed: the mark may appear at any moment, as if hardware had set it.
    #[inline]
    pub(crate) fn mark_touched(&self, at: &PteRef<'_>, access: Access) -> Result<(), Retry> {
        let format = Self::FORMAT;
        if !format.faults_for_marks || !format.permits(at.value, access) {
            return Ok(());
        }
        let marked = format.touched(at.value, access);
        match marked == at.value || at.entry.replace(at.value, marked).is_ok() {
            true => Ok(()),
            false => Err(Retry::EntryClaimed),
        }
    }

    /// Maps a fresh zeroed page: a write to an empty entry or to the zero page.
    #[inline]
    pub(crate) fn map_fresh_page<N: TraceSink>(
        &self,
        at: &PteRef<'_>,
        page: Page,
        prepared: &mut FaultState<M, N>,
    ) -> Result<(), Retry> {
        let frame = prepared.page()?;
        // Owner, flags and map count are written before publication (rule R7). The frame is unreachable until
        // then, so they may precede the claim.
        let descriptor = self.machine().frames().descriptor(frame);
        descriptor.set_anonymous(self.number(), page.0);
        self.tables().transact(at, || {
            prepared.page_used();
            let protection = at.vma.protection();
            let mut leaf = Self::FORMAT.leaf_of(frame, true, protection, true);
            if at.value != 0 {
                // Flush what CPUs have cached of the zero page before the new page can be written (rule R3).
                self.tables().flush_page(page, at.value);
                leaf = self.marked(leaf, at);
            }
            Ok(self.allowed::<N>(leaf, at))
        })?;
        let cpu = self.machine().cpu();
        self.tables().rss.came(cpu, RssKind::Anonymous);
        Ok(())
    }

    /// Maps the shared zero page read-only: a read of an empty entry.
    pub(crate) fn map_zero_page<N: TraceSink>(&self, at: &PteRef<'_>) -> Result<(), Retry> {
        let zero = self.machine().frames().zero_frame();
        let protection = at.vma.protection();
        self.tables().transact(at, || {
            let mut leaf = Self::FORMAT.leaf_of(zero, false, protection, false);
            if at.value != 0 {
                leaf = self.marked(leaf, at);
            }
            Ok(self.allowed::<N>(leaf, at))
        })?;
        self.memory().count(Counter::ZeroPageMaps);
        Ok(())
    }

    /// Returns `leaf` as this CPU publishes it, of a page that no TLB holds. It allows no more than the
    /// mapping does, which matters only for a forced fault.
    #[inline]
    pub(crate) fn allowed<N: TraceSink>(&self, leaf: u64, at: &PteRef<'_>) -> u64 {
        let format = Self::FORMAT;
        let leaf = self.tables().with_tlb_owner(leaf);
        match N::FORCES {
            true => format.with_protection(leaf, at.vma.protection(), format.is_writable(leaf)),
            false => leaf,
        }
    }

    /// Puts a table into an empty entry above the page.
    pub(crate) fn install_table<N: TraceSink>(
        &self,
        at: &PteRef<'_>,
        prepared: &mut FaultState<M, N>,
    ) -> Result<(), Retry> {
        let table = prepared.table()?;
        let published = self.tables().transact(at, || {
            prepared.page_used();
            Ok(self.tables().with_tlb_owner(Self::FORMAT.table(table)))
        });
        match published {
            Ok(()) => {
                let cpu = self.machine().cpu();
                self.tables().rss.came(cpu, RssKind::Table);
                self.memory().count(Counter::TableAlloc);
            }
            // Another fault is installing a table: the next walk finds it.
            Err(Retry::EntryClaimed) => return Err(Retry::TableChanged),
            Err(why) => return Err(why),
        }
        Ok(())
    }

    /// Ends a fault with no mapping at `page`, unless the mapping above grows down to it.
    fn not_mapped(&self, page: Page, access: Access, mode: Mode) -> Result<Outcome, Retry> {
        match self.grow_down(page)? {
            // Grown now: the next try maps the page.
            Some(protection) => match self.check_access(protection, access) {
                None => Err(Retry::MappingChanged),
                Some(code) => Ok(self.refuse(mode, code, page.address())),
            },
            None => Ok(self.refuse(mode, SegvCode::MapErr, page.address())),
        }
    }

    /// Ends a fault with no mapping, or with one that does not allow the access.
    fn refuse(&self, mode: Mode, code: SegvCode, address: u64) -> Outcome {
        self.memory().count(Counter::FaultsRefused);
        self.ends_in_segv(mode, code, address)
    }

    /// Ends a fault on a guard, in a mapping that allows the access.
    pub(crate) fn guard_fault(&self, mode: Mode, address: u64) -> Outcome {
        self.memory().count(Counter::FaultsFailed);
        self.ends_in_segv(mode, SegvCode::MapErr, address)
    }

    fn ends_in_segv(&self, mode: Mode, code: SegvCode, address: u64) -> Outcome {
        if mode.is_speculative() {
            self.memory().count(Counter::SpfVmaAccess);
            self.event(Kind::SpfVmaAccess, address, code as u64);
        }
        self.done(mode, Outcome::Segv(code))
    }

    /// Ends a fault that the mapping allows, but that has no page.
    #[cold]
    fn fails(&self, mode: Mode, outcome: Outcome) -> Outcome {
        self.memory().count(Counter::FaultsFailed);
        self.done(mode, outcome)
    }

    #[inline(always)]
    fn done(&self, mode: Mode, outcome: Outcome) -> Outcome {
        match mode {
            #[cfg(feature = "speculative")]
            Mode::Speculative => self.memory().count(Counter::Spf),
            Mode::VmaLock => self.memory().count(Counter::VmaLockSuccess),
            Mode::Locked => {}
        }
        outcome
    }

    #[cold]
    fn fall_back<N: TraceSink>(&self, mode: Mode, why: Retry, address: u64, trail: &mut N) {
        let (counter, kind) = match why {
            Retry::EntryClaimed => (Counter::SpfPteLock, Kind::SpfPteLock),
            Retry::TableChanged | Retry::Wait(Blocker::Fork) => {
                (Counter::SpfPmdChanged, Kind::SpfPmdChanged)
            }
            _ => (Counter::SpfVmaChanged, Kind::SpfVmaChanged),
        };
        let cpu = self.memory().this_cpu();
        match mode {
            Mode::VmaLock => cpu.counters().count(Counter::VmaLockAbort),
            _ => cpu.counters().count(counter),
        }
        self.event(kind, address, 0);
        trail.fell_back(why);
    }
}
