//! `remap_file_pages`: shows another part of the file in a part of a shared mapping. As Linux does since 4.0, by
//! `mmap` of that part.

use linux_raw_sys::general as linux;

use crate::errno::{Answer, EINVAL, EOVERFLOW, Errno};
use crate::files::mapped::{self, MmapArgs};
use crate::memory::{Attributes, Locked, PAGE_SIZE};
use crate::process::{UserSpace, space};

pub fn remap_file_pages(start: u64, size: u64, protection: u64, page: u64, flags: u64) -> Answer {
    let (start, size) = (start & !(PAGE_SIZE - 1), size & !(PAGE_SIZE - 1));
    let end = start.wrapping_add(size);
    if protection != 0 || end <= start || page.checked_add(size / PAGE_SIZE).is_none() {
        return Err(EINVAL);
    }
    let space = space();
    let mapping = space.lookup(start).ok_or(EINVAL)?;
    // As on Linux, a mapping that can never be written does not count as shared.
    if !mapping.flags.shared || mapping.flags.never_written {
        return Err(EINVAL);
    }
    check(space, start, end, &mapping)?;
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
    mapped::map_again(&wish).map(|_| 0)
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

/// Checks that a range is mapped without holes, in the same way and from the same open file.
fn check(space: &UserSpace, start: u64, end: u64, first: &Attributes) -> Result<(), Errno> {
    let source = |at| {
        let file = space.maps_after(at)?.file?;
        Some((file.file, space.store_at(at)?.0.id()))
    };
    let from = source(start).ok_or(EINVAL)?;
    let mut at = start;
    while at < end {
        let mapping = space.lookup(at).ok_or(EINVAL)?;
        if (mapping.protection, mapping.flags) != (first.protection, first.flags)
            || source(at) != Some(from)
        {
            return Err(EINVAL);
        }
        at = space.maps_after(at).ok_or(EINVAL)?.end;
    }
    Ok(())
}
