//! The hook through which guests follow the page tables of their host.
//!
//! A *guest* has page tables of its own, which show pages of a space under other addresses (`faultless-tdp`). What a
//! guest's entry shows is taken from the host's entry alone. So the host's entry is also what a guest validates
//! ([`HostEntry::get`]), and no sequence is counted:
//!
//! * A guest claims its own entry, which is a full barrier, and then looks at the host's entry again.
//! * An operation that takes a page out of an entry of the host, or lowers it, does so by a read-modify-write, and tells
//!   the guests before its flush. They look at their own entries then, and wait for claims.
//!
//! Either the guest sees the host's entry changed and withdraws, or the operation sees the claim and then what the guest
//! has published (rule R1). A table that a fork freezes or that a move takes away changes no entry in it. Both flush, and
//! a guest walks from the root each time.
//!
//! * [`GuestHook`] is a link in the space's list, which is read without a lock, in a section. The guest keeps it in
//!   memory that is retired after it has left the list.
//! * A space without guests pays one load for each flush.
//! * A guest maps a huge page as a whole ([`HostEntry::whole`]), or its pages one by one, from the one entry: it splits nothing. A
//!   split changes nothing that a guest shows, so guests are not told. A guest that has found the huge page's entry finds no page
//!   there afterwards.
//!
//! *Writes*: the list, when a guest comes or goes; accessed and dirty bits of the host's entries.
//!
//! *Models*: loom `host.rs` of `faultless-tdp`.

use core::ptr::NonNull;

use faultless_paging::{
    Access, ENTRIES, Entry, Frame, Gather, Link, Page, Pages, Table, Value, Walk,
};
use faultless_sync::atomic::{AtomicU64, Ordering};
use faultless_sync::reclaim::Section;
use faultless_sync::{Mutant, SpinLock, fence_after_rmw, mutant};

use crate::base::machine::Machine;
use crate::table::Tables;
use crate::table::huge::huge_span;

/// What a guest does for its host, given the guest. Called in a read section, perhaps with interrupts off and with entries
/// claimed. It may wait for claims of the guest's own entries, and for nothing else.
pub struct GuestCalls<M: Machine> {
    /// The host has changed these pages, and is about to flush.
    pub changed: fn(NonNull<()>, &HostPages<'_, M>, Pages),
    /// Returns whether the guest has used a page of the host since this was last asked with `true`, which makes the page
    /// count as unused. Without a flush.
    pub age: fn(NonNull<()>, Page, bool) -> bool,
}

/// A guest's link in its host's list.
pub struct GuestHook<M: Machine> {
    next: AtomicU64,
    calls: GuestCalls<M>,
    guest: NonNull<()>,
}

// SAFETY: the owner of a hook promises that its guest is shared between threads ([`crate::AddressSpace::add_guest`]).
unsafe impl<M: Machine> Send for GuestHook<M> {}
// SAFETY: as above.
unsafe impl<M: Machine> Sync for GuestHook<M> {}

impl<M: Machine> GuestHook<M> {
    /// Makes a hook that is in no list.
    pub fn new(calls: GuestCalls<M>, guest: NonNull<()>) -> Self {
        Self {
            next: AtomicU64::new(0),
            calls,
            guest,
        }
    }
}

/// The guests of a space.
pub(crate) struct Guests {
    /// The first hook's address, or 0.
    first: AtomicU64,
    /// Held to change the list.
    lock: SpinLock<()>,
}

impl Guests {
    pub(crate) fn new() -> Self {
        Self {
            first: AtomicU64::new(0),
            lock: SpinLock::new(()),
        }
    }

    /// Adds a hook that is in no list.
    pub(crate) fn add<M: Machine>(&self, machine: &M, hook: &GuestHook<M>) {
        let _lock = self.lock.lock(machine);
        hook.next
            .store(self.first.load(Ordering::Relaxed), Ordering::Relaxed);
        let address = core::ptr::from_ref(hook).expose_provenance() as u64;
        // Release: a reader that finds the hook finds it filled in.
        self.first.store(address, Ordering::Release);
    }

    /// Removes a hook. Readers may be at it until their sections end.
    pub(crate) fn remove<M: Machine>(&self, machine: &M, hook: &GuestHook<M>) {
        let _lock = self.lock.lock(machine);
        let address = core::ptr::from_ref(hook).expose_provenance() as u64;
        let mut link = &self.first;
        loop {
            let at = link.load(Ordering::Relaxed);
            if at == address {
                // The removed hook still leads on.
                return link.store(hook.next.load(Ordering::Relaxed), Ordering::Release);
            }
            // SAFETY: in the list, which only the holder of the lock changes.
            let Some(other) = (unsafe { at_address::<M>(at) }) else {
                return;
            };
            link = &other.next;
        }
    }
}

/// Returns the hook at an address of a list.
///
/// # Safety
/// The caller is in a section in which it found the address, or holds the list's lock.
unsafe fn at_address<'a, M: Machine>(address: u64) -> Option<&'a GuestHook<M>> {
    let hook = core::ptr::with_exposed_provenance::<GuestHook<M>>(address as usize);
    // SAFETY: the caller's promise.
    unsafe { hook.as_ref() }
}

impl<M: Machine> Tables<M> {
    /// Tells the guests what an operation has changed, which `gather` has. Before the flush.
    #[inline]
    pub(crate) fn tell_guests(&self, gather: &Gather) {
        // The entries were changed by read-modify-writes, or before a fence. Partner: the barrier of a guest's claim, which
        // comes after the guest is in the list.
        fence_after_rmw();
        let first = self.guests.first.load(Ordering::Acquire);
        if first != 0 && !gather.is_empty() && !mutant(Mutant::GuestsNotTold) {
            self.tell_from(gather.pages());
        }
    }

    #[cold]
    fn tell_from(&self, pages: Pages) {
        let host = HostPages { tables: self };
        self.for_each_guest(|hook| (hook.calls.changed)(hook.guest, &host, pages));
    }

    fn for_each_guest(&self, mut visit: impl FnMut(&GuestHook<M>)) {
        let _section = self.memory.enter_if_outside();
        let mut at = self.guests.first.load(Ordering::Acquire);
        // SAFETY: found in the section; hooks are retired.
        while let Some(hook) = unsafe { at_address::<M>(at) } {
            visit(hook);
            at = hook.next.load(Ordering::Acquire);
        }
    }

    /// Returns what an entry holds, if guests may show its page whether or not the host counts it as used.
    #[inline]
    pub(crate) fn for_guests(&self, entry: &Entry) -> Option<Value> {
        if self.guests.first.load(Ordering::Acquire) == 0 {
            return None;
        }
        let value = entry.load();
        (Self::FORMAT.is_present(value) && !Self::FORMAT.is_claimed(value)).then_some(value)
    }

    /// Whether a guest has used a page since it was last aged. With `clears`, it counts as unused from then on.
    #[inline]
    pub(crate) fn age_guests(&self, page: u64, clears: bool) -> bool {
        self.guests.first.load(Ordering::Acquire) != 0 && self.age_from(Page(page), clears)
    }

    #[cold]
    fn age_from(&self, page: Page, clears: bool) -> bool {
        let mut is_used = false;
        self.for_each_guest(|hook| is_used |= (hook.calls.age)(hook.guest, page, clears));
        is_used
    }
}

/// What an entry of the host shows to its guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPage {
    /// The page's frame.
    pub frame: Frame,
    /// The host may store to it now, and it counts as written: a guest may be let store to it.
    pub takes_stores: bool,
    /// The host counts it as used. A guest shows no other pages: what the host cools, guests lose.
    pub is_used: bool,
}

/// The pages of a host, as its guests see them.
pub struct HostPages<'a, M: Machine> {
    pub(crate) tables: &'a Tables<M>,
}

impl<M: Machine> HostPages<'_, M> {
    /// Returns the entry of a page; `None` if there is no table for it, or another operation is at work there.
    #[inline]
    pub fn find<'s>(&'s self, page: Page, section: &'s Section<'_>) -> Option<HostEntry<'s, M>> {
        let (entry, link, meant) = match self.tables.look(page, section) {
            Walk::Leaf { entry, link, .. } => (entry, link, Meant::Small),
            Walk::Huge { entry, link, .. } => (entry, link, Meant::Part),
            Walk::Missing { .. } | Walk::Busy => return None,
        };
        Some(HostEntry {
            tables: self.tables,
            entry,
            link,
            page,
            meant,
        })
    }

    /// Returns the pages for the hook, whose caller is in a section.
    #[inline]
    pub fn told(&self) -> ToldPages<'_, M> {
        ToldPages {
            tables: self.tables,
            last: None,
        }
    }
}

/// The pages of a host for one call of a hook. Neighbours take one walk.
///
/// A table that was found may be moved or frozen meanwhile. Whatever does that, or changes an entry after it was looked at,
/// tells the guests later.
pub struct ToldPages<'a, M: Machine> {
    tables: &'a Tables<M>,
    /// The table that was found last, its number, and whether it is frozen.
    last: Option<(u64, &'a Table, bool)>,
}

impl<'a, M: Machine> ToldPages<'a, M> {
    /// Returns what the entry of a page shows; `None` as for [`HostEntry::get`].
    #[inline]
    pub fn get(&mut self, page: Page) -> Option<HostPage> {
        let number = page.0 / ENTRIES as u64;
        match self.last {
            Some((last, table, is_frozen)) if last == number => {
                shown(self.tables, table.entry(page.0, 0).load(), is_frozen)
            }
            _ => self.walk(page),
        }
    }

    /// Returns what the entry of the huge page that begins with this page shows; `None` also if there is no huge page, or no longer.
    #[cold]
    #[inline(never)]
    pub fn get_huge(&mut self, first: Page) -> Option<HostPage> {
        if self
            .last
            .is_some_and(|(last, ..)| last == first.0 / ENTRIES as u64)
        {
            return None;
        }
        // SAFETY: the caller of the hook is in a section.
        match unsafe { self.tables.look_unchecked(first) } {
            Walk::Huge { value, .. } => shown(self.tables, value, false),
            Walk::Leaf { .. } | Walk::Missing { .. } | Walk::Busy => None,
        }
    }

    #[inline]
    fn walk(&mut self, page: Page) -> Option<HostPage> {
        // SAFETY: the caller of the hook is in a section.
        match unsafe { self.tables.look_unchecked(page) } {
            Walk::Leaf { value, link, .. } => {
                let table = link.table::<M::Format, M>(self.tables.machine());
                let number = page.0 / ENTRIES as u64;
                self.last = table.map(|table| (number, table, link.is_frozen()));
                shown(self.tables, value, link.is_frozen())
            }
            // A huge page is not frozen: a fork write-protects or splits it.
            Walk::Huge { value, .. } => {
                shown(self.tables, self.tables.part_of(value, page.0), false)
            }
            Walk::Missing { .. } | Walk::Busy => None,
        }
    }
}

/// What is meant by the entry of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meant {
    /// The page's own entry.
    Small,
    /// The page, as a part of the huge page whose entry it is.
    Part,
    /// The huge page, which begins with the page.
    Huge,
}

/// The entry of a host's page, found in a section.
pub struct HostEntry<'s, M: Machine> {
    tables: &'s Tables<M>,
    entry: &'s Entry,
    link: Link<'s>,
    page: Page,
    meant: Meant,
}

impl<'s, M: Machine> HostEntry<'s, M> {
    /// Returns what the entry shows now; `None` if it shows no page, or another operation is at work on it.
    #[inline]
    pub fn get(&self) -> Option<HostPage> {
        self.shown(self.entry.load(), self.link.is_frozen())
    }

    /// Returns what a value of the entry shows.
    #[inline]
    fn shown(&self, value: Value, is_frozen: bool) -> Option<HostPage> {
        match self.meant {
            Meant::Small => shown(self.tables, value, is_frozen),
            Meant::Part | Meant::Huge => self.shown_in(value),
        }
    }

    #[cold]
    fn shown_in(&self, value: Value) -> Option<HostPage> {
        // A table has taken its place, or a claim.
        if !Tables::<M>::FORMAT.is_huge(value) {
            return None;
        }
        let meant = match self.meant {
            Meant::Huge => value,
            Meant::Small | Meant::Part => self.tables.part_of(value, self.page.0),
        };
        shown(self.tables, meant, false)
    }

    /// Whether it was the entry of a huge page.
    #[inline]
    pub fn is_huge(&self) -> bool {
        self.meant != Meant::Small
    }

    /// Returns the same entry as that of the huge page around the page, of which [`HostPage::frame`] is the first frame. `None` if it
    /// was none.
    #[inline]
    pub fn whole(&self) -> Option<HostEntry<'s, M>> {
        self.is_huge().then(|| HostEntry {
            page: Page(huge_span(self.page.0).start),
            meant: Meant::Huge,
            ..*self
        })
    }

    /// Whether the entry is still the page's: its table has not moved, and no fork has frozen it. After the full barrier of
    /// a claim.
    #[inline]
    pub fn is_in_place(&self) -> bool {
        self.link.is_valid()
    }

    /// Returns what the entry shows, for an access by a guest, and sets its accessed and dirty bits like hardware. `None` if
    /// the access has to fault first ([`crate::AddressSpace::fault`]), or a fork has yet to copy the table, which the fault
    /// waits for.
    #[inline]
    pub fn access(&self, access: Access) -> Option<HostPage> {
        let format = Tables::<M>::FORMAT;
        if self.link.is_frozen() {
            return None;
        }
        let mut value = self.entry.load();
        loop {
            let mut shown = self.shown(value, false)?;
            shown.is_used = true;
            let mut used = match format.is_used(value) {
                true => value,
                false => value | format.accessed,
            };
            if access == Access::Write {
                if !format.is_writable(value) {
                    return None;
                }
                used |= format.dirty;
                shown.takes_stores = true;
            }
            if used == value || self.entry.replace(value, used).is_ok() {
                return Some(shown);
            }
            value = self.entry.load();
        }
    }

    /// Returns the entry of a page beside this one, if it is in the same table.
    #[inline]
    pub fn beside(&self, page: Page) -> Option<HostEntry<'s, M>> {
        let entries = ENTRIES as u64;
        if page.0 / entries != self.page.0 / entries {
            return None;
        }
        let entry = match self.meant {
            Meant::Small => {
                let table = self.link.table::<M::Format, M>(self.tables.machine())?;
                table.entry(page.0, 0)
            }
            Meant::Part | Meant::Huge => self.entry,
        };
        Some(HostEntry {
            entry,
            page,
            ..*self
        })
    }
}

#[inline]
fn shown<M: Machine>(_: &Tables<M>, value: u64, is_frozen: bool) -> Option<HostPage> {
    let format = Tables::<M>::FORMAT;
    if !format.is_present(value) || format.is_claimed(value) {
        return None;
    }
    Some(HostPage {
        frame: format.frame(value),
        takes_stores: !is_frozen && format.is_writable(value) && format.is_dirty(value),
        is_used: format.is_used(value),
    })
}
