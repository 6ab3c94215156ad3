//! The fault engine. There is one; this file reads from top to bottom like the
//! ten steps of ARCHITECTURE.md.
//!
//! Policies differ in how the mapping is found and held (`VmaRef`), and in nothing
//! else. A try ends in an outcome or is *withdrawn* with a reason; a speculative
//! fault whose tries were all withdrawn keeps writers from its page, so that only
//! the page itself and its tables can still be in motion.
//!
//! Written lines, away from allocator batches: the CPU's own lines, the frame,
//! its descriptor, and the line of the entry. See [`crate::fault::state`] for what is
//! got ready before anything is claimed, [`crate::fault::kinds::file`] for pages of a store, and
//! [`crate::fault::kinds::cow`] for writes to pages that `fork` may have shared.

mod check_access;
pub(crate) mod kinds;
pub(crate) mod pin;
pub(crate) mod retry;
pub(crate) mod state;
pub(crate) mod trace;
pub(crate) mod vma;

use faultless_frames::FrameSource;
use faultless_paging::{Access, Entry, Link, Page, Walk, walk};
use faultless_sync::{Backoff, Mutant, mutant};
use faultless_trace::{Counter, How, Kind, Tracer};

use crate::base::machine::Machine;
use crate::fault::retry::Retry;
use crate::fault::state::FaultState;
use crate::fault::trace::{FaultTrace, TraceSink};
use crate::fault::vma::{Mode, VmaRef};
use crate::space::AddressSpace;
use crate::table::rss::RssKind;

/// How a fault ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The access can be tried again.
    Resolved,
    /// The access is an error: SIGSEGV with this code.
    Segv(SegvCode),
    /// There is nothing behind the page, or it could not be read: SIGBUS (`BUS_ADRERR`).
    Bus,
    /// There is no frame for the page.
    OutOfMemory,
}

/// The `si_code` of a SIGSEGV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum SegvCode {
    /// No mapping there.
    MapErr = 1,
    /// The mapping does not allow the access.
    AccErr = 2,
    /// The mapping may only be executed, and the machine refuses other accesses
    /// ([`Machine::refuses_data`]).
    KeyErr = 4,
}

/// Tries before a fault falls back to keeping writers out.
///
/// Several times what any machine spins ([`faultless_sync::Wait::relax`]): the CPU waited for may
/// not be running, under an emulator or a hypervisor, and gets to run only once this one lets go of
/// the host. Nothing is gained by giving up before: a claim that lasts, because its fault waits for
/// other CPUs to flush, would have to be waited for under the lock as well.
const TRIES: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 1024 };

impl<M: Machine> AddressSpace<M> {
    /// Resolves a fault at a byte address, or says what is wrong with the access.
    ///
    /// Called by a trap handler, by the kernel's own accesses to user memory,
    /// and by POPULATE. Not from interrupt context, and with no lock held.
    pub fn fault(&self, address: u64, access: Access) -> Outcome {
        if Tracer::any_is_on() {
            return self.fault_recorded(address, access);
        }
        self.resolve(address, access, &mut FaultState::new(self.memory, ()))
    }

    /// The same, with notes. The engine is built twice, so that a fault without them is what it
    /// would be if there were none.
    #[cold]
    #[inline(never)]
    fn fault_recorded(&self, address: u64, access: Access) -> Outcome {
        let start = self.trace_start();
        let mut prepared = FaultState::new(self.memory, FaultTrace::new());
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
        if address >= self.layout.end {
            self.memory.count(Counter::Faults);
            return self.refuse(Mode::of(self.policy()), SegvCode::MapErr, address);
        }
        let page = Page::containing(address);
        let mut backoff = Backoff::new();
        let mut mode = Mode::of(self.policy());
        let mut lock = mode.lock(self, page);
        self.memory.count(Counter::Faults);
        loop {
            let why = match self.attempt(page, access, mode, prepared) {
                Ok(outcome) => return outcome,
                Err(why) => why,
            };
            if why == Retry::NoMemory && !prepared.find_memory() && !self.take_let_go() {
                // Resolved without the lock all the same: waiting for it finds no frame.
                return self.fails(mode, Outcome::OutOfMemory);
            }
            if why == Retry::NotFilled {
                // Nothing is held while somebody reads the page in.
                drop(lock.take());
                match prepared.wait_for_page() {
                    None => {}
                    Some(Outcome::OutOfMemory) if self.take_let_go() => {}
                    Some(outcome) => return self.fails(mode, outcome),
                }
                lock = mode.lock(self, page);
                continue;
            }
            if why == Retry::Zapped {
                // Something is being taken away where a stack would grow: whoever does that is
                // waited for with nothing held.
                drop(lock.take());
                self.await_zaps_below_stack(page);
                backoff.rest(self.machine());
                lock = mode.lock(self, page);
                continue;
            }
            if lock.is_none() && backoff.turns() >= TRIES {
                self.fall_back(mode, why, address, &mut prepared.trail);
                mode = Mode::Locked;
                lock = mode.lock(self, page);
                continue;
            }
            if mode.is_speculative() {
                self.memory.count(Counter::SpfRetry);
            }
            backoff.rest(self.machine());
        }
    }

    /// One try: the life of a fault.
    fn attempt<N: TraceSink>(
        &self,
        page: Page,
        access: Access,
        mode: Mode,
        prepared: &mut FaultState<M, N>,
    ) -> Result<Outcome, Retry> {
        // 1. Enter a read section: what is found below stays what it is until the end.
        let section = self.memory.enter();

        // 2. Find the mapping, and hold it as the policy does.
        let Some(hold) = VmaRef::find(self, page, mode, &section)? else {
            drop(section);
            return self.not_mapped(page, access, mode);
        };

        // 3. Decide. What a live mapping does not allow is an error, now.
        let may_be_forced = || N::FORCES && hold.may_be_forced(access);
        if let Some(code) = self.check_access(hold.protection(), access)
            && !may_be_forced()
        {
            return Ok(self.refuse(mode, code, page.address()));
        }

        // 4. Walk; install missing tables by the same protocol as pages.
        let (entry, value, link) = loop {
            // SAFETY: inside the section; the root lives as long as the space.
            match unsafe { walk::<M::Format, M>(self.machine(), self.root, page) } {
                Walk::Leaf { entry, value, link } => break (entry, value, link),
                Walk::Missing { entry, link, .. } => {
                    let at = PteRef {
                        entry,
                        value: 0,
                        link,
                        hold: &hold,
                    };
                    self.install_table(&at, prepared)?;
                    prepared.trail.has_table();
                }
                Walk::Busy => return Err(Retry::TableChanged),
            }
        };

        // The flaw is not to go round and round where hardware refuses what the entry permits.
        if link.is_frozen()
            && (!mutant(Mutant::FrozenIgnored) || Self::FORMAT.permits(value, access))
        {
            // A fork has yet to copy this table: next, please.
            self.prioritise_copy(page);
            return Err(Retry::TableChanged);
        }

        // 5. to 9. Prepare, claim, validate, complete, publish: by what is there now.
        let at = PteRef {
            entry,
            value,
            link,
            hold: &hold,
        };
        let format = Self::FORMAT;
        if format.is_claimed(value) {
            return Err(Retry::EntryClaimed);
        } else if format.permits(value, access) || N::FORCES && self.suffices(value, access) {
            // Somebody else was faster, or the TLB was behind.
            prepared.count_wait();
            prepared.trail.ends(How::Spurious);
        } else if value == 0 && hold.is_backed() {
            match self.map_file_page(&at, page, access, prepared)? {
                Outcome::Resolved => {}
                error => return Ok(self.fails(mode, error)),
            }
        } else if value == 0 && access != Access::Write {
            self.map_zero_page::<N>(&at)?;
            prepared.trail.ends(How::ZeroPage);
        } else if value == 0 {
            self.map_fresh_page(&at, page, prepared)?;
            prepared.trail.ends(How::FirstTouch);
        } else if format.is_guard(value) {
            return self.meet_guard(&at, mode, page);
        } else if access != Access::Write || !(format.is_present(value) || N::FORCES) {
            // The mapping allows what the entry does not: seen in the middle of a change.
            return Err(Retry::MappingChanged);
        } else if self.is_zero_page(format.frame(value)) {
            self.map_fresh_page(&at, page, prepared)?;
            prepared.trail.ends(How::ZeroReplaced);
        } else {
            self.write_page(&at, page, prepared)?;
        }

        // 10. Afterwards, on lines of this CPU alone.
        Ok(self.done(mode, Outcome::Resolved))
    }

    /// Write to an empty entry, or to the zero page: a fresh page, zeroed.
    #[inline]
    fn map_fresh_page<N: TraceSink>(
        &self,
        at: &PteRef<'_>,
        page: Page,
        prepared: &mut FaultState<M, N>,
    ) -> Result<(), Retry> {
        let frame = prepared.page()?;
        // Owner, flags and map count precede publication (rule R7); nobody
        // reaches the frame before that, so they may precede the claim.
        let descriptor = self.machine().frames().descriptor(frame);
        descriptor.set_anonymous(self.id, page.0);
        self.publish(at, || {
            prepared.page_used();
            if at.value != 0 {
                // What CPUs have cached of the zero page must go before the new
                // page can be written (rule R3).
                self.flush_page(page, at.value);
            }
            let protection = at.hold.protection();
            let leaf = Self::FORMAT.leaf_of(frame, true, protection, true);
            Ok(self.allowed::<N>(leaf, at))
        })?;
        self.rss.came(self.machine().cpu(), RssKind::Anonymous);
        Ok(())
    }

    /// Read of an empty entry: the shared zero page, read-only.
    fn map_zero_page<N: TraceSink>(&self, at: &PteRef<'_>) -> Result<(), Retry> {
        let zero = self.machine().frames().zero_frame();
        let protection = at.hold.protection();
        self.publish(at, || {
            let leaf = Self::FORMAT.leaf_of(zero, false, protection, false);
            Ok(self.allowed::<N>(leaf, at))
        })?;
        self.memory.count(Counter::ZeroPageMaps);
        Ok(())
    }

    /// What is to be published of a page that no TLB holds, as far as the mapping allows: only
    /// where it need not allow the access is that less.
    #[inline]
    pub(crate) fn allowed<N: TraceSink>(&self, leaf: u64, at: &PteRef<'_>) -> u64 {
        let format = Self::FORMAT;
        let leaf = self.with_tlb_owner(leaf);
        match N::FORCES {
            true => format.with_protection(leaf, at.hold.protection(), format.is_writable(leaf)),
            false => leaf,
        }
    }

    /// An entry that no TLB holds, as this CPU publishes it: whose walks mark what they load, it is
    /// this CPU's own until another one loads it ([`faultless_paging::holders`]).
    #[inline]
    pub(crate) fn with_tlb_owner(&self, value: u64) -> u64 {
        match self.machine().marks_loads() {
            true => Self::FORMAT.owned(value, self.machine().cpu()),
            false => value,
        }
    }

    /// Puts a table under an empty entry above the page.
    pub(crate) fn install_table<N: TraceSink>(
        &self,
        at: &PteRef<'_>,
        prepared: &mut FaultState<M, N>,
    ) -> Result<(), Retry> {
        let table = prepared.table()?;
        let published = self.publish(at, || {
            prepared.page_used();
            Ok(self.with_tlb_owner(Self::FORMAT.table(table)))
        });
        match published {
            Ok(()) => {
                self.rss.came(self.machine().cpu(), RssKind::Table);
                self.memory.count(Counter::TableAlloc);
            }
            // Somebody else is putting one there: the next look finds it.
            Err(Retry::EntryClaimed) => return Err(Retry::TableChanged),
            Err(why) => return Err(why),
        }
        Ok(())
    }

    /// Steps 6 to 9: claim the entry from the value the decision was based on,
    /// validate the rest of it, `complete`, and publish what that returns. It may
    /// still withdraw, if it has done nothing: a page's identity is for it to validate.
    ///
    /// The claim is a full barrier; its partner is the fence of rule R1 in
    /// whoever changes a mapping ([`crate::lock`]) or a table's link
    /// ([`faultless_paging::free`]).
    #[inline]
    pub(crate) fn publish(
        &self,
        at: &PteRef<'_>,
        complete: impl FnOnce() -> Result<u64, Retry>,
    ) -> Result<(), Retry> {
        let interrupts = self.machine().interrupts_off();
        let result = match at.entry.claim::<M::Format>(at.value, self.machine().cpu()) {
            // A claim that is dropped is withdrawn.
            Ok(claim) => at
                .validate()
                .and_then(|()| complete())
                .map(|value| claim.publish(value)),
            Err(_) => Err(Retry::EntryClaimed),
        };
        self.machine().interrupts_restore(interrupts);
        result
    }

    /// No mapping at `page`: perhaps one above grows down to it, else an error.
    fn not_mapped(&self, page: Page, access: Access, mode: Mode) -> Result<Outcome, Retry> {
        match self.grow_down(page)? {
            // Found now: the next try maps the page.
            Some(protection) => match self.check_access(protection, access) {
                None => Err(Retry::MappingChanged),
                Some(code) => Ok(self.refuse(mode, code, page.address())),
            },
            None => Ok(self.refuse(mode, SegvCode::MapErr, page.address())),
        }
    }

    /// Nothing is mapped there, or not for this access.
    fn refuse(&self, mode: Mode, code: SegvCode, address: u64) -> Outcome {
        self.memory.count(Counter::FaultsRefused);
        self.ends_in_segv(mode, code, address)
    }

    /// A guard is there, in a mapping that allows the access.
    pub(crate) fn guard_fault(&self, mode: Mode, address: u64) -> Outcome {
        self.memory.count(Counter::FaultsFailed);
        self.ends_in_segv(mode, SegvCode::MapErr, address)
    }

    fn ends_in_segv(&self, mode: Mode, code: SegvCode, address: u64) -> Outcome {
        if mode.is_speculative() {
            self.memory.count(Counter::SpfVmaAccess);
            self.event(Kind::SpfVmaAccess, address, code as u64);
        }
        self.done(mode, Outcome::Segv(code))
    }

    /// The mapping allows the access, and there is no page.
    #[cold]
    fn fails(&self, mode: Mode, outcome: Outcome) -> Outcome {
        self.memory.count(Counter::FaultsFailed);
        self.done(mode, outcome)
    }

    #[inline]
    fn done(&self, mode: Mode, outcome: Outcome) -> Outcome {
        match mode {
            #[cfg(feature = "speculative")]
            Mode::Speculative => self.memory.count(Counter::Spf),
            Mode::VmaLock => self.memory.count(Counter::VmaLockSuccess),
            Mode::Locked => {}
        }
        outcome
    }

    #[cold]
    fn fall_back<N: TraceSink>(&self, mode: Mode, why: Retry, address: u64, trail: &mut N) {
        let (counter, kind) = match why {
            Retry::EntryClaimed => (Counter::SpfPteLock, Kind::SpfPteLock),
            Retry::TableChanged => (Counter::SpfPmdChanged, Kind::SpfPmdChanged),
            _ => (Counter::SpfVmaChanged, Kind::SpfVmaChanged),
        };
        let cpu = self.memory.this_cpu();
        match mode {
            Mode::VmaLock => cpu.counters().count(Counter::VmaLockAbort),
            _ => cpu.counters().count(counter),
        }
        self.event(kind, address, 0);
        trail.fell_back(why);
    }
}

/// Where a fault has come to: an entry, what it held, and what that was based on.
pub(crate) struct PteRef<'s> {
    pub(crate) entry: &'s Entry,
    pub(crate) value: u64,
    pub(crate) link: Link<'s>,
    pub(crate) hold: &'s VmaRef<'s>,
}

impl PteRef<'_> {
    /// Step 7: what the decision was based on, beside the entry. The mapping is
    /// the same and not changing, and the table still hangs where it was found.
    #[inline]
    pub(crate) fn validate(&self) -> Result<(), Retry> {
        if !self.hold.is_valid() {
            return Err(Retry::MappingChanged);
        }
        if !self.link.is_valid() {
            return Err(Retry::TableChanged);
        }
        Ok(())
    }
}
