//! A process's descriptor table: from numbers to open file descriptions.
//!
//! The lock is held to read or change an entry, never while a description is used or dropped.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::description::Description;
use super::lock::{self, Owner};
use crate::errno::{EBADF, EINVAL, EMFILE, ENOMEM, EPERM, Errno};
use crate::process;
use crate::shared::Shared;
use crate::sync::SpinLock;

/// Descriptors that a process may have by default, and the most that it may ask for (`RLIMIT_NOFILE`).
pub const SOFT_LIMIT: u64 = 1024;
pub const HARD_LIMIT: u64 = 4096;

struct Entry {
    description: Shared<Description>,
    close_on_exec: bool,
}

/// The table.
pub struct Table {
    entries: SpinLock<Vec<Option<Entry>>>,
    limit: AtomicU64,
    /// Processes that share it and have not ended. The last one closes everything, because the table itself
    /// stays until the parent has waited.
    users: AtomicU32,
}

/// The table of the current process.
#[inline]
pub fn current() -> &'static Table {
    // SAFETY: The current process is the current thread's; no system call goes on after an `exec`.
    unsafe { process::current().descriptors.own() }
}

impl Table {
    /// Makes an empty table.
    pub const fn new() -> Self {
        Self {
            entries: SpinLock::new(Vec::new()),
            limit: AtomicU64::new(SOFT_LIMIT),
            users: AtomicU32::new(1),
        }
    }

    /// Makes a child's table: the same descriptions under the same numbers.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn duplicate(&self) -> Result<Self, Errno> {
        let mut copy = Vec::new();
        loop {
            let length = self.entries.lock().len();
            copy.try_reserve_exact(length).map_err(|_| ENOMEM)?;
            let entries = self.entries.lock();
            // It may have grown meanwhile.
            if entries.len() > copy.capacity() {
                continue;
            }
            copy.extend(entries.iter().map(|entry| {
                entry.as_ref().map(|entry| Entry {
                    description: entry.description.clone(),
                    close_on_exec: entry.close_on_exec,
                })
            }));
            break;
        }
        Ok(Self {
            entries: SpinLock::new(copy),
            limit: AtomicU64::new(self.limit()),
            users: AtomicU32::new(1),
        })
    }

    /// Closes the descriptors that a new program does not get.
    pub fn close_on_exec(&self) {
        self.close_where(|_, entry| entry.close_on_exec);
    }

    /// Adds a process that shares it.
    pub fn share(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a process that shared it and ends.
    pub fn leave(&self) {
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            let entries = core::mem::take(&mut *self.entries.lock());
            lock::release_all(self.owner(), None);
            drop(entries);
        }
    }

    /// The owner of the locks that `fcntl` sets for the processes that share this table.
    pub fn owner(&self) -> Owner {
        Owner::Table(core::ptr::from_ref(self) as usize)
    }

    /// Drops a closed descriptor. As on Linux, all locks of its file are released, whichever descriptor set
    /// them.
    fn let_go(&self, entry: Option<Entry>) {
        let Some(entry) = entry else {
            return;
        };
        if lock::any()
            && let Ok(file) = entry.description.file_id()
        {
            lock::release_all(self.owner(), Some(file));
        }
        drop(entry);
    }

    /// The most descriptors that there may be.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// The size of the table as programs can tell: `select` looks no further. As on Linux, it begins with 64
    /// and grows to powers of two.
    pub fn reach(&self) -> usize {
        match self.entries.lock().len() {
            ..=64 => 64,
            length => length.next_power_of_two().max(128),
        }
    }

    /// Sets the most descriptors that there may be.
    ///
    /// # Errors
    /// `EPERM` for more than the hard limit.
    pub fn set_limit(&self, limit: u64) -> Result<(), Errno> {
        if limit > HARD_LIMIT {
            return Err(EPERM);
        }
        self.limit.store(limit, Ordering::Relaxed);
        Ok(())
    }

    /// The description of a descriptor.
    ///
    /// # Errors
    /// `EBADF`.
    #[inline]
    pub fn get(&self, number: u64) -> Result<Shared<Description>, Errno> {
        let entries = self.entries.lock();
        // Only the lower half of the register counts.
        match entries.get(number as u32 as usize) {
            Some(Some(entry)) => Ok(entry.description.clone()),
            _ => Err(EBADF),
        }
    }

    /// Adds a description under the lowest free number from `lowest` on.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`; `EINVAL` if `lowest` is beyond the limit.
    pub fn add(
        &self,
        description: Shared<Description>,
        lowest: u64,
        close_on_exec: bool,
    ) -> Result<u64, Errno> {
        let limit = self.limit();
        if lowest >= limit {
            return Err(if lowest == 0 { EMFILE } else { EINVAL });
        }
        let mut entries = self.entries.lock();
        let from = (lowest as usize).min(entries.len());
        let free = entries[from..].iter().position(Option::is_none);
        let number = free.map_or(entries.len().max(lowest as usize), |free| from + free);
        if number as u64 >= limit {
            return Err(EMFILE);
        }
        grow(&mut entries, number)?;
        entries[number] = Some(Entry {
            description,
            close_on_exec,
        });
        Ok(number as u64)
    }

    /// Puts a description under a number, in place of another one.
    ///
    /// # Errors
    /// `EBADF` if the number is beyond the limit; `ENOMEM`.
    pub fn put(
        &self,
        description: Shared<Description>,
        number: u64,
        close_on_exec: bool,
    ) -> Result<u64, Errno> {
        if number >= self.limit() {
            return Err(EBADF);
        }
        let new = Entry {
            description,
            close_on_exec,
        };
        let old = {
            let mut entries = self.entries.lock();
            grow(&mut entries, number as usize)?;
            entries[number as usize].replace(new)
        };
        self.let_go(old);
        Ok(number)
    }

    /// Closes a descriptor.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close(&self, number: u64) -> Result<u64, Errno> {
        let old = {
            let mut entries = self.entries.lock();
            entries
                .get_mut(number as u32 as usize)
                .and_then(Option::take)
        };
        let was_open = old.is_some();
        self.let_go(old);
        if was_open { Ok(0) } else { Err(EBADF) }
    }

    /// Closes all descriptors in a range.
    pub fn close_range(&self, first: u64, last: u64) {
        self.close_where(|number, _| (first..=last).contains(&number));
    }

    /// Sets the close-on-exec mark of all descriptors in a range.
    pub fn mark_range(&self, first: u64, last: u64) {
        let mut entries = self.entries.lock();
        for entry in (0..).zip(entries.iter_mut()) {
            if let (number, Some(entry)) = entry
                && (first..=last).contains(&number)
            {
                entry.close_on_exec = true;
            }
        }
    }

    fn close_where(&self, which: impl Fn(u64, &Entry) -> bool) {
        let mut at = 0;
        loop {
            let old = {
                let mut entries = self.entries.lock();
                let wanted = |(number, entry): (usize, &Option<Entry>)| {
                    entry
                        .as_ref()
                        .is_some_and(|entry| which(number as u64, entry))
                        .then_some(number)
                };
                let Some(number) = entries.iter().enumerate().skip(at).find_map(wanted) else {
                    return;
                };
                at = number + 1;
                entries[number].take()
            };
            self.let_go(old);
        }
    }

    /// Whether a descriptor is closed by exec.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn closes_on_exec(&self, number: u64) -> Result<bool, Errno> {
        let entries = self.entries.lock();
        match entries.get(number as u32 as usize) {
            Some(Some(entry)) => Ok(entry.close_on_exec),
            _ => Err(EBADF),
        }
    }

    /// Sets whether a descriptor is closed by exec.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn set_closes_on_exec(&self, number: u64, closes: bool) -> Result<(), Errno> {
        let mut entries = self.entries.lock();
        match entries.get_mut(number as u32 as usize) {
            Some(Some(entry)) => entry.close_on_exec = closes,
            _ => return Err(EBADF),
        }
        Ok(())
    }

    /// The first descriptor in use from a number on.
    pub fn next(&self, from: u64) -> Option<u64> {
        let entries = self.entries.lock();
        let used = (0..).zip(entries.iter()).skip(from as usize);
        used.filter(|(_, entry)| entry.is_some())
            .map(|(number, _)| number)
            .next()
    }

    /// How many entries it has memory for.
    pub fn size(&self) -> usize {
        self.entries.lock().capacity()
    }
}

/// Makes room for an entry with this number.
fn grow(entries: &mut Vec<Option<Entry>>, number: usize) -> Result<(), Errno> {
    if number >= entries.len() {
        let more = number + 1 - entries.len();
        entries.try_reserve(more).map_err(|_| ENOMEM)?;
        entries.resize_with(number + 1, || None);
    }
    Ok(())
}
