//! Limits of what an address space may map, and the checks of operations against them.
//!
//! Limits may change at any time, and apply from then on: what is mapped stays mapped. A limit is compared
//! with the [`crate::tree::account`] under the edit lock under which the change is then made. So two changes
//! that would each fit alone cannot both succeed; this includes stack growth. (A move by `mremap` is checked
//! before it makes room: a growing stack may take some of what the move was promised.)
//!
//! No fault reads a limit, except one that grows a stack.
//!
//! Overcommit is Linux's heuristic: a single request must fit into the machine's memory and swap, and nothing else is
//! checked ([`crate::Layout::commit_pages`]). The sum of what is committed is only reported
//! ([`crate::Memory::committed`]). Each CPU has a part of it, so that no line is shared.

use faultless_paging::{PAGE_SIZE, Pages};
use faultless_sync::atomic::Local;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::lock::Edit;
use crate::lock::Mappings;
use crate::lock::shard::LockDomain;
use crate::tree::account::{Account, VmStats};
use crate::tree::mapping::{Attributes, Locked};

/// What an address space may map, in bytes, except for the number of mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// All mappings together (`RLIMIT_AS`).
    pub address_space: u64,
    /// Private writable memory (`RLIMIT_DATA`).
    pub data: u64,
    /// The hard limit of data. As on Linux, it applies while `data` is 0.
    pub most_data: u64,
    /// One mapping that grows down, checked when it grows (`RLIMIT_STACK`).
    pub stack: u64,
    /// Locked memory (`RLIMIT_MEMLOCK`).
    pub locked: u64,
    /// The limit of locked memory does not apply (`CAP_IPC_LOCK`).
    pub locks_freely: bool,
    /// The number of mappings (`vm.max_map_count`).
    pub mappings: u64,
}

impl Limits {
    /// No limits.
    pub const NONE: Limits = Limits {
        address_space: u64::MAX,
        data: u64::MAX,
        most_data: u64::MAX,
        stack: u64::MAX,
        locked: u64::MAX,
        locks_freely: true,
        mappings: u64::MAX,
    };

    /// The limits of a process without privileges on Linux.
    pub const LINUX: Limits = Limits {
        stack: 8 << 20,
        locked: 8 << 20,
        locks_freely: false,
        mappings: 65_530,
        ..Limits::NONE
    };
}

/// The limits of an address space. Written under all edit locks.
pub(crate) struct LimitWords {
    address_space: Local,
    pub(crate) data: Local,
    most_data: Local,
    pub(crate) stack: Local,
    pub(crate) locked: Local,
    locks_freely: Local,
    pub(crate) mappings: Local,
}

impl LimitWords {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            address_space: Local::new(limits.address_space),
            data: Local::new(limits.data),
            most_data: Local::new(limits.most_data),
            stack: Local::new(limits.stack),
            locked: Local::new(limits.locked),
            locks_freely: Local::new(limits.locks_freely.into()),
            mappings: Local::new(limits.mappings),
        }
    }

    fn get(&self) -> Limits {
        Limits {
            address_space: self.address_space.get(),
            data: self.data.get(),
            most_data: self.most_data.get(),
            stack: self.stack.get(),
            locked: self.locked.get(),
            locks_freely: self.locks_freely.get() != 0,
            mappings: self.mappings.get(),
        }
    }

    fn set(&self, limits: &Limits) {
        self.address_space.set(limits.address_space);
        self.data.set(limits.data);
        self.most_data.set(limits.most_data);
        self.stack.set(limits.stack);
        self.locked.set(limits.locked);
        self.locks_freely.set(limits.locks_freely.into());
        self.mappings.set(limits.mappings);
    }
}

/// What is mapped, or will be after a change, and what may be mapped.
pub(crate) struct Headroom<'a> {
    account: &'a Account,
    /// Whether everything is counted there. If not, no limit can be reached ([`crate::lock::shard`]).
    is_exact: bool,
    limits: &'a LimitWords,
    change: VmStats,
}

impl Headroom<'_> {
    /// Returns the headroom after a change.
    pub(crate) fn after(self, change: VmStats) -> Self {
        Self { change, ..self }
    }

    /// Whether `more` pages with these attributes may be mapped.
    pub(crate) fn has(&self, attributes: &Attributes, more: u64) -> bool {
        let Self {
            account,
            limits,
            change,
            is_exact,
        } = self;
        if !is_exact {
            return true;
        }
        let mapped = account.mapped.get().wrapping_add(change.mapped);
        if mapped.saturating_add(more) > limits.address_space.get() / PAGE_SIZE {
            return false;
        }
        if !attributes.is_data() {
            return true;
        }
        let data = account.data.get().wrapping_add(change.data);
        let data = data.saturating_add(more);
        data <= limits.data.get() / PAGE_SIZE
            // As on Linux, the hard limit applies while the limit is 0.
            || (limits.data.get() == 0 && data <= limits.most_data.get() / PAGE_SIZE)
    }

    /// Whether the limit of locked memory does not apply.
    pub(crate) fn locks_freely(&self) -> bool {
        self.limits.locks_freely.get() != 0
    }

    /// Whether any memory may be locked.
    pub(crate) fn may_lock(&self) -> bool {
        self.locks_freely() || self.limits.locked.get() != 0
    }

    /// Whether `more` pages with these attributes may be mapped, as far as locked memory is concerned.
    pub(crate) fn may_lock_more(&self, attributes: &Attributes, more: u64) -> bool {
        attributes.flags.locked == Locked::No || self.may_lock_pages(more)
    }

    /// Whether `more` pages may be locked.
    pub(crate) fn may_lock_pages(&self, more: u64) -> bool {
        let locked = self.account.locked.get().wrapping_add(self.change.locked);
        let limit = self.limits.locked.get() / PAGE_SIZE;
        self.locks_freely() || !self.is_exact || locked.saturating_add(more) <= limit
    }

    /// Whether everything that is mapped may be locked. As on Linux, pages that are locked already are not
    /// subtracted.
    pub(crate) fn may_lock_all(&self) -> bool {
        let limit = self.limits.locked.get() / PAGE_SIZE;
        self.locks_freely() || self.account.mapped.get() <= limit
    }

    /// Whether fewer than `spare` mappings could be added.
    pub(crate) fn is_short_of(&self, spare: u64) -> bool {
        let mappings = self.account.mappings.get();
        self.is_exact && mappings.saturating_add(spare) > self.limits.mappings.get()
    }
}

impl<M: Machine> Mappings<M> {
    /// Returns the limits.
    pub(crate) fn limits(&self) -> Limits {
        self.limits.get()
    }

    /// Sets the limits.
    pub(crate) fn set_limits(&self, limits: &Limits) {
        // Under the edit locks, so that an operation sees all of them or none.
        let _edit = self.edit(LockDomain::All);
        self.limits.set(limits);
        self.settle_strictness();
    }

    /// Whether, under this edit, everything that is mapped is counted in the space's own account.
    fn is_exact(&self, edit: &Edit<'_, M>) -> bool {
        let has_all = self.shard_count() == 0 || edit.part() == LockDomain::All;
        has_all || (edit.counts_centrally() && self.counts_strictly())
    }

    /// Returns the headroom, which is valid during this edit.
    pub(crate) fn room<'a>(&'a self, edit: &'a Edit<'_, M>) -> Headroom<'a> {
        Headroom {
            account: self.account_of(edit),
            is_exact: self.is_exact(edit),
            limits: &self.limits,
            change: VmStats::default(),
        }
    }

    /// Whether there are more mappings than allowed, so that nothing new is mapped.
    pub(crate) fn has_too_many_mappings(&self, edit: &Edit<'_, M>) -> bool {
        self.room(edit).is_short_of(0)
    }

    /// The same, judged with nothing held.
    pub(crate) fn looks_full(&self) -> bool {
        let is_exact = self.shard_count() == 0 || self.counts_strictly();
        is_exact && self.account.mappings.get() > self.limits.mappings.get()
    }

    /// Whether there is a limit of locked memory.
    pub(crate) fn has_lock_limit(&self) -> bool {
        self.limits.locks_freely.get() == 0 && self.limits.locked.get() != u64::MAX
    }

    /// Whether a single request may commit this many pages with these attributes.
    pub(crate) fn may_commit(&self, attributes: &Attributes, pages: u64) -> bool {
        !attributes.commits() || self.fits(pages)
    }

    /// Whether memory and swap together have so many pages.
    pub(crate) fn fits(&self, pages: u64) -> bool {
        let memory = self.layout.commit_pages;
        pages <= memory || pages - memory <= self.memory.swap_usage().0
    }

    /// Checks that `pages` may become `new`, or unmapped, as far as mappings are counted. As on Linux, only a
    /// change that *splits* a mapping is refused: not a change that adds none, and not at an end where the
    /// pages join a neighbour.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn check_split(
        &self,
        edit: &Edit<'_, M>,
        pages: Pages,
        new: Option<&Attributes>,
    ) -> Result<(), Errno> {
        let room = self.room(edit);
        // A change in the middle of a mapping adds two. Near the limit, compute the exact number.
        if !room.is_short_of(2) {
            return Ok(());
        }
        let more = self.tally(edit, pages, new).mappings;
        if more.cast_signed() > 0 && room.is_short_of(more) {
            return Err(Errno::ENOMEM);
        }
        Ok(())
    }

    /// Checks that `pages` may be mapped with these attributes, in place of what is mapped there.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn check_replacing(
        &self,
        edit: &Edit<'_, M>,
        pages: Pages,
        attributes: &Attributes,
    ) -> Result<(), Errno> {
        self.check_split(edit, pages, None)?;
        let change = self.tally(edit, pages, Some(attributes));
        // As on Linux, replaced pages are subtracted whatever they were.
        if !self.room(edit).has(attributes, change.mapped) {
            return Err(Errno::ENOMEM);
        }
        let charged = u64::try_from(change.committed.cast_signed()).unwrap_or(0);
        match self.may_commit(attributes, charged) {
            true => Ok(()),
            false => Err(Errno::ENOMEM),
        }
    }

    /// Checks that `pages`, where nothing is mapped, may be mapped with these attributes.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn check_new(
        &self,
        edit: &Edit<'_, M>,
        pages: Pages,
        attributes: &Attributes,
    ) -> Result<(), Errno> {
        let more = pages.len();
        match self.room(edit).has(attributes, more) && self.may_commit(attributes, more) {
            true => Ok(()),
            false => Err(Errno::ENOMEM),
        }
    }
}
