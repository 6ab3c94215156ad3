//! Applies probes ([`crate::probe::list`]) to one address space: installs breakpoints, removes them, and finds
//! the probe of a trap.
//!
//! * [`crate::lock::probed`] says whether the space *may* show breakpoints. If it may not, a trap is at a
//!   breakpoint of the program's own.
//! * The end of a probe passes over a space that cannot show any. The installation of a breakpoint sets the
//!   space's mark before it checks, under the claim, whether the probe is ending.
//!
//! *Writes*: `Mappings::probed`; for a page, what an access from outside writes.

use faultless_frames::Flags;
use faultless_paging::{Access, PAGE_SIZE, Page, Pages, Walk};
use faultless_sync::{Mutant, mutant};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::object::ObjectInner;
use crate::object::probe::{ProbeFilter, ProbeInfo};
use crate::space::AddressSpace;
use crate::tree::mapping::{Attributes, ObjectRef};

/// Returns the tag of the probe at an address, for a trap at a breakpoint there. `None`: the breakpoint is the
/// program's own, if it is still there, or the probe has ended.
pub(crate) fn probe_at<M: Machine>(space: &AddressSpace<M>, address: u64) -> Option<u64> {
    if !space.maps.may_show_probes() {
        return None;
    }
    let found = space.lookup(address).and_then(|attributes| {
        let backed = attributes.shows_probes()?;
        let index = backed.index(address / PAGE_SIZE);
        let byte = index.checked_mul(PAGE_SIZE)? + address % PAGE_SIZE;
        space.maps.find_probe_of(backed, byte)
    });
    if found.is_none() {
        space.maps.check_probes();
    }
    found.map(|known| known.tag)
}

/// Installs breakpoints in what is mapped of `pages`, after the caller has changed the tree, with nothing held.
/// Where there is no memory for a breakpoint there is none, as on Linux.
pub(crate) fn install_probes<M: Machine>(space: &AddressSpace<M>, pages: Pages) {
    // The caller has held the range: see `await_change`.
    if !space.memory().has_probes() {
        return;
    }
    let mut at = pages.start;
    while let Some((part, attributes)) = space.maps.mapped_in(at, pages.end) {
        at = part.end;
        if let Some(backed) = attributes.shows_probes() {
            install_in(space, part, backed);
        }
    }
}

/// The same for the pages of one mapping.
fn install_in<M: Machine>(space: &AddressSpace<M>, pages: Pages, backed: &ObjectRef) {
    let cache = backed.pointer().as_ptr().cast::<ObjectInner>();
    let mut at = pages.start;
    while at < pages.end {
        let rest = Pages::new(at, pages.end);
        let Some(known) = registered_in(space, cache, backed.index(at), rest) else {
            return;
        };
        at = page_of(space, &known, backed.first);
        // All probes of the page, in order.
        let page = at;
        let mut next = Some(known);
        while let Some(known) = next {
            let _ = install_probe(space, page, (cache, backed.first), &known);
            let end = (known.byte / PAGE_SIZE + 1).saturating_mul(PAGE_SIZE);
            let rest = known.byte + 1..end;
            next = space
                .memory()
                .find_probe(cache, rest, ProbeFilter::Registered);
        }
        at += 1;
    }
}

fn registered_in<M: Machine>(
    space: &AddressSpace<M>,
    cache: *const ObjectInner,
    index: u64,
    pages: Pages,
) -> Option<ProbeInfo> {
    space
        .memory()
        .probe_in(cache, index, pages, ProbeFilter::Registered)
}

fn page_of<M: Machine>(_space: &AddressSpace<M>, known: &ProbeInfo, first: u64) -> u64 {
    (known.byte / PAGE_SIZE).wrapping_sub(first)
}

/// Waits until no operation changes what is mapped at a page, including a fork that fills this space. Earlier
/// changes are seen from here on; a later change sees what the caller has done.
pub(crate) fn await_change<M: Machine>(space: &AddressSpace<M>, page: u64) {
    if page < space.layout().end / PAGE_SIZE && !mutant(Mutant::ProbeBesideChanges) {
        drop(space.maps.hold_range(Pages::new(page, page + 1)));
    }
}

/// Installs a breakpoint in a page, if the probe is registered, and a mapping of the object shows the page and
/// cannot be written.
pub(crate) fn install_probe<M: Machine>(
    space: &AddressSpace<M>,
    page: u64,
    (cache, first): (*const ObjectInner, u64),
    known: &ProbeInfo,
) -> Result<(), Errno> {
    let is_meant = |attributes: &Attributes| {
        let backed = attributes.shows_probes();
        backed.is_some_and(|backed| backed.leads_to(cache, first)) && !attributes.protection.write
    };
    let Some(address) = address_of(space, page, &is_meant) else {
        return Ok(());
    };
    // Before a program can run it.
    space.maps.show_probes();
    let mut is_put = false;
    let mut put = |frame| {
        let bytes = known.byte..known.byte + 1;
        let found = space
            .memory()
            .find_probe(cache, bytes, ProbeFilter::Registered);
        if found.is_some() || mutant(Mutant::ProbeOutlived) {
            space
                .memory()
                .set_byte_in(frame, known.byte, known.breakpoint);
            is_put = true;
        }
    };
    let result = space.access_meant(address, Access::Write, &is_meant, &mut put);
    if !is_put {
        // An unmap meanwhile may have found that the space showed none.
        space.maps.check_probes_later();
    }
    match result {
        Err(Errno::ENOMEM) => Err(Errno::ENOMEM),
        // Or something else is mapped there by now.
        _ => Ok(()),
    }
}

/// Removes a breakpoint from a page, where a mapping of the object shows it. Leaves what the program itself has
/// written there, in a space that shows no probes.
pub(crate) fn remove_probe<M: Machine>(
    space: &AddressSpace<M>,
    page: u64,
    (cache, first): (*const ObjectInner, u64),
    known: &ProbeInfo,
) -> Result<(), Errno> {
    let is_meant = |attributes: &Attributes| {
        let backed = attributes.shows_probes();
        backed.is_some_and(|backed| backed.leads_to(cache, first))
    };
    if page >= space.layout().end / PAGE_SIZE || !has_copy(space, page) {
        return Ok(());
    }
    let Some(address) = address_of(space, page, &is_meant) else {
        return Ok(());
    };
    let mut is_there = false;
    let mut look = |frame| {
        is_there = space.memory().byte_in(frame, known.byte) == known.breakpoint;
    };
    // A page that is no longer there has to be brought for this.
    let looked = space.access_meant(address, Access::Read, &is_meant, &mut look);
    is_done(space, page, &is_meant, looked)?;
    if !is_there || known.breakpoint == known.original {
        return Ok(());
    }
    let mut put = |frame| {
        if space.memory().byte_in(frame, known.byte) == known.breakpoint {
            space
                .memory()
                .set_byte_in(frame, known.byte, known.original);
        }
    };
    let removed = space.access_meant(address, Access::Write, &is_meant, &mut put);
    is_done(space, page, &is_meant, removed)
}

/// Whether the copy of a page needs no second access after one with this result: the access was made, or the mapping
/// is gone. A copy that is still on its device shows the breakpoint when it comes back.
///
/// # Errors
/// `ENOMEM`, or `EIO` of the device.
fn is_done<M: Machine>(
    space: &AddressSpace<M>,
    page: u64,
    is_meant: &dyn Fn(&Attributes) -> bool,
    result: Result<(), Errno>,
) -> Result<(), Errno> {
    match result {
        Err(Errno::ENOMEM) => Err(Errno::ENOMEM),
        Err(_) if is_swapped(space, page) && address_of(space, page, is_meant).is_some() => {
            Err(Errno::EIO)
        }
        _ => Ok(()),
    }
}

fn is_swapped<M: Machine>(space: &AddressSpace<M>, page: u64) -> bool {
    let section = space.memory().enter();
    match space.tables().look(Page(page), &section) {
        Walk::Leaf { entry, .. } => {
            let value = space.tables().settled(entry);
            space.tables().swap_of(value).is_some()
        }
        _ => false,
    }
}

/// Whether a page is one of the space's own, in a space that may show breakpoints. An object's page shows none.
/// Waits as [`await_change`] does, and looks while no operation can move the page.
fn has_copy<M: Machine>(space: &AddressSpace<M>, page: u64) -> bool {
    let _range = space.maps.hold_range(Pages::new(page, page + 1));
    if !space.maps.may_show_probes() {
        return false;
    }
    space.maps.check_probes_later();
    let section = space.memory().enter();
    let walked = space.tables().descend(Page(page), &section);
    let Walk::Leaf { entry, .. } = walked else {
        return matches!(walked, Walk::Busy);
    };
    let value = space.tables().settled(entry);
    if space.tables().swap_of(value).is_some() {
        // Only a private copy was swapped out.
        return true;
    }
    AddressSpace::<M>::FORMAT.has_page(value)
        && space
            .tables()
            .counted(value)
            .is_some_and(|descriptor| !descriptor.flags().has(Flags::FILE))
}

/// Returns the address of a page, if its mapping satisfies `is_meant`.
fn address_of<M: Machine>(
    space: &AddressSpace<M>,
    page: u64,
    is_meant: &dyn Fn(&Attributes) -> bool,
) -> Option<u64> {
    if page >= space.layout().end / PAGE_SIZE {
        return None;
    }
    let address = Page(page).address();
    let attributes = space.lookup(address)?;
    is_meant(&attributes).then_some(address)
}
