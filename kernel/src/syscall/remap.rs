//! `remap_file_pages`: shows another part of the file in a part of a shared mapping. As Linux does since 4.0, by
//! `mmap` of that part.

use core::ops::Range;

use linux_raw_sys::general as linux;

use crate::errno::{Answer, EINVAL, EOVERFLOW, Errno};
use crate::files::mapped::{self, MmapArgs};
use crate::memory::{Attributes, Locked, MemoryObject, PAGE_SIZE};
use crate::process::{UserSpace, space};

pub fn remap_file_pages(start: u64, size: u64, protection: u64, page: u64, flags: u64) -> Answer {
    let (start, size) = (start & !(PAGE_SIZE - 1), size & !(PAGE_SIZE - 1));
    let end = start.wrapping_add(size);
    if protection != 0 || end <= start || page.checked_add(size / PAGE_SIZE).is_none() {
        return Err(EINVAL);
    }
    let space = space();
    let (store, mapping) = mapped(space, start)?;
    // As on Linux, a mapping that can never be written does not count as shared.
    if !mapping.flags.shared || mapping.flags.never_written {
        return Err(EINVAL);
    }
    let file = mapping.backed.map_or(0, |backed| backed.file());
    check(space, start..end, &store, &mapping)?;
    let mut all = linux::MAP_SHARED | linux::MAP_FIXED | linux::MAP_POPULATE;
    all |= flags as u32 & linux::MAP_NONBLOCK;
    if mapping.flags.locked != Locked::No {
        all |= linux::MAP_LOCKED;
    }
    let wish = MmapArgs {
        address: start,
        length: size,
        protection: bits(&mapping),
        flags: all,
        offset: page.checked_mul(PAGE_SIZE).ok_or(EOVERFLOW)?,
    };
    mapped::map_again(&wish, &store, file).map(|_| 0)
}

fn bits(mapping: &Attributes) -> u32 {
    let bits = [
        (mapping.protection.read, linux::PROT_READ),
        (mapping.protection.write, linux::PROT_WRITE),
        (mapping.protection.execute, linux::PROT_EXEC),
    ];
    let set = bits.iter().filter(|(is_set, _)| *is_set);
    set.fold(0, |all, (_, bit)| all | bit)
}

/// The object at an address, and the attributes of the mapping that has it.
fn mapped(space: &UserSpace, at: u64) -> Result<(MemoryObject, Attributes), Errno> {
    let (store, _, mapping) = space.mapped_object_at(at).ok_or(EINVAL)?;
    Ok((store, mapping))
}

/// Checks that a range is mapped without holes, in the same way and from the same open file.
fn check(
    space: &UserSpace,
    range: Range<u64>,
    store: &MemoryObject,
    first: &Attributes,
) -> Result<(), Errno> {
    let file = |mapping: &Attributes| mapping.backed.map(|backed| backed.file());
    let mut at = range.start;
    while at < range.end {
        let (other, mapping) = mapped(space, at)?;
        let is_same = (mapping.protection, mapping.flags) == (first.protection, first.flags)
            && file(&mapping) == file(first)
            && other.id() == store.id();
        if !is_same {
            return Err(EINVAL);
        }
        at = space.maps_after(at).ok_or(EINVAL)?.end;
    }
    Ok(())
}
