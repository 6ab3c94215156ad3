//! `/proc/PID/maps`: a line for each mapping.
//!
//! The address space merges neighbours with equal attributes. Linux keeps a program's bss and the heap apart,
//! so a line is cut there.

use core::fmt::Write;

use arrayvec::ArrayString;

use super::Text;
use crate::errno::{EINTR, ENOMEM, Errno};
use crate::files::node::{MEMORY, Node};
use crate::files::{hpet, source};
use crate::memory::{MapsEntry, USER_END};
use crate::process::{Process, UserSpace};
use crate::sched;
use crate::sched::thread::Work;

/// The entry of the first line from an address on.
pub fn next(space: &UserSpace, address: u64) -> Option<MapsEntry> {
    let mut entry = space.maps_after(address)?;
    let heap = space.heap().0;
    if entry.start < heap && heap < entry.end {
        entry.end = heap;
    }
    Some(entry)
}

/// Calls `visit` for every line, until it fails.
pub fn for_each(
    process: &Process,
    mut visit: impl FnMut(&UserSpace, &MapsEntry) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let Some(space) = process.space() else {
        return Ok(());
    };
    let mut at = 0;
    while let Some(entry) = next(&space, at) {
        visit(&space, &entry)?;
        at = entry.end;
        // The visit of a mapping may take time in proportion to its pages.
        if !sched::breathe() && sched::current().work().contains(Work::EXIT) {
            return Err(EINTR);
        }
    }
    Ok(())
}

/// Writes the line of a mapping.
pub fn line(space: &UserSpace, text: &mut Text, entry: &MapsEntry) -> Result<(), Errno> {
    // The object mapped there now, unless the mapping has changed since.
    let store = entry.file.and_then(|file| {
        let (store, _) = space.object_at(entry.start)?;
        (store.tag() == file.tag).then_some(store)
    });
    let source = store.as_ref().map(|store| match store.tag() {
        0 => None,
        // SAFETY: The object is held as long as the source is used, and the tag is its own.
        tag => Some(unsafe { source::of(tag) }),
    });
    let number = match (&store, source) {
        (Some(_), Some(Some(source))) => source.number,
        (Some(store), _) => store.id(),
        _ => 0,
    };
    let flag = |set: bool, letter: char| if set { letter } else { '-' };
    // Long enough for two addresses and the rest.
    let mut start = ArrayString::<128>::new();
    write!(
        start,
        "{:08x}-{:08x} {}{}{}{} {:08x} 00:{:02x} {} ",
        entry.start,
        entry.end,
        flag(entry.protection.read, 'r'),
        flag(entry.protection.write, 'w'),
        flag(entry.protection.execute, 'x'),
        if entry.shared { 's' } else { 'p' },
        entry.file.map_or(0, |file| file.offset),
        if store.is_some() { MEMORY } else { 0 },
        number,
    )
    .map_err(|_| ENOMEM)?;
    let (heap_start, heap_end) = space.heap();
    let is_device = entry.file.filter(|_| entry.device);
    let name = match source {
        _ if is_device.is_some_and(|file| file.tag == hpet::TAG) => "/dev/hpet",
        Some(None) if store.as_ref().is_some_and(|store| store.is_pooled()) => {
            "/anon_hugepage (deleted)"
        }
        Some(None) => "/dev/zero (deleted)",
        Some(Some(_)) => "",
        None if entry.end == USER_END => "[stack]",
        None if heap_start <= entry.start && entry.start < heap_end => "[heap]",
        None => "",
    };
    let origin = source.flatten().and_then(source::Source::origin);
    if name.is_empty() && origin.is_none() {
        return text.line(format_args!("{start}"));
    }
    // Linux pads to column 73 before a name.
    text.add(format_args!("{start:73}{name}"))?;
    if let (Some(origin), Some(Some(source))) = (origin, source) {
        let is = |there: &Node| {
            there
                .inode()
                .is_ok_and(|inode| inode.number == source.number)
        };
        origin.write(text, is)?;
    }
    text.bytes(b"\n")
}
