//! System calls on memory: they go straight to the address space, except for mappings of files. One that finds no memory
//! for the core's own objects reclaims some, and is tried again.

use faultless_mm::advice;
use linux_raw_sys::general as linux;

use super::file::transfer;
use super::pidfd;
use crate::arch::layout::{map_flags, untagged};
use crate::arch::uaccess;
use crate::errno::{Answer, EBADF, EFAULT, EINVAL, ENOMEM, ESRCH};
use crate::files::descriptors;
use crate::files::mapped::{self, MmapArgs};
use crate::memory::reclaim::or_reclaim;
use crate::process::space;

pub fn mmap(
    address: u64,
    length: u64,
    protection: u64,
    flags: u64,
    fd: u64,
    offset: u64,
) -> Answer {
    if !offset.is_multiple_of(4096) {
        return Err(EINVAL);
    }
    let (protection, flags) = (protection as u32, map_flags(flags as u32));
    if flags & linux::MAP_ANONYMOUS != 0 {
        return or_reclaim(|| space().mmap(address, length, protection, flags));
    }
    let description = descriptors::current().get(fd)?;
    if description.flags() & linux::O_PATH != 0 {
        return Err(EBADF);
    }
    if flags & linux::MAP_HUGETLB != 0 && !mapped::is_pooled(&description) {
        return Err(EINVAL);
    }
    let wish = MmapArgs {
        address,
        length,
        protection,
        flags,
        offset,
    };
    or_reclaim(|| mapped::map(&description, &wish))
}

pub fn munmap(address: u64, length: u64) -> Answer {
    let address = untagged(address);
    or_reclaim(|| space().munmap(address, length)).map(|()| 0)
}

pub fn mprotect(address: u64, length: u64, protection: u64) -> Answer {
    let address = untagged(address);
    or_reclaim(|| space().mprotect(address, length, protection as u32)).map(|()| 0)
}

pub fn mremap(old: u64, old_length: u64, length: u64, flags: u64, new: u64) -> Answer {
    let old = untagged(old);
    // All known flags are in the lower half.
    let flags = u32::try_from(flags).map_err(|_| EINVAL)?;
    or_reclaim(|| space().mremap(old, old_length, length, flags, new))
}

pub fn mincore(address: u64, length: u64, to: u64) -> Answer {
    let address = untagged(address);
    if !address.is_multiple_of(4096) {
        return Err(EINVAL);
    }
    if !uaccess::range_ok(address, length) {
        return Err(ENOMEM);
    }
    if !uaccess::range_ok(to, length.div_ceil(4096)) {
        return Err(EFAULT);
    }
    let say = |first, there: &[u8]| uaccess::write_bytes(to + first, there);
    space().mincore(address, length, say).map(|()| 0)
}

pub fn msync(address: u64, length: u64, flags: u64) -> Answer {
    let address = untagged(address);
    space().msync(address, length, flags as u32).map(|()| 0)
}

pub fn madvise(address: u64, length: u64, advice: u64) -> Answer {
    let address = untagged(address);
    if advice as u32 == linux::MADV_REMOVE {
        return mapped::remove(address, length);
    }
    or_reclaim(|| space().madvise(address, length, advice as i32)).map(|()| 0)
}

pub fn mseal(address: u64, length: u64, flags: u64) -> Answer {
    space().mseal(address, length, flags).map(|()| 0)
}

/// Advises on ranges of a process, this one or another; returns how many bytes were advised.
pub fn process_madvise(process: u64, vector: u64, count: u64, advice: u64, flags: u64) -> Answer {
    if flags as u32 != 0 {
        return Err(EINVAL);
    }
    transfer::check_vector(vector, count)?;
    let process = pidfd::process(process)?;
    let advice = advice as i32;
    // Linux 6.12 accepts no other advice here, not even for the caller's own process.
    if !matches!(
        advice,
        advice::COLD | advice::PAGEOUT | advice::WILLNEED | advice::COLLAPSE
    ) {
        return Err(EINVAL);
    }
    let space = process.space().ok_or(ESRCH)?;
    transfer::each(vector, count, |address, length, _| {
        space.madvise(address, length, advice).map(|()| length)
    })
}

pub fn mlock(address: u64, length: u64) -> Answer {
    let address = untagged(address);
    mlock2(address, length, 0)
}

pub fn mlock2(address: u64, length: u64, flags: u64) -> Answer {
    let address = untagged(address);
    or_reclaim(|| space().mlock(address, length, flags as u32)).map(|()| 0)
}

pub fn munlock(address: u64, length: u64) -> Answer {
    let address = untagged(address);
    or_reclaim(|| space().munlock(address, length)).map(|()| 0)
}

pub fn mlockall(flags: u64) -> Answer {
    space().mlockall(flags as u32).map(|()| 0)
}

pub fn munlockall() -> Answer {
    space().munlockall();
    Ok(0)
}

pub fn brk(address: u64) -> Answer {
    Ok(space().brk(address))
}
