//! Mapping of open files, and calls on a file through a mapping of it.

use faultless_mm::{Locked, advice};
use linux_raw_sys::general as linux;

use super::content::{self, Content};
use super::description::{Description, Object};
use super::device::Device;
use super::hpet;
use super::node::Body;
use super::source::{self, Source, seal};
use crate::errno::{Answer, EACCES, EINVAL, ENODEV, ENOMEM, EPERM, Errno};
use crate::memory::Device as Frames;
use crate::memory::machine::memory;
use crate::memory::reclaim::or_reclaim;
use crate::memory::{MemoryObject, Opened, OpenedDevice};
use crate::process::space;

/// Arguments of `mmap` other than the file.
#[derive(Clone, Copy)]
pub struct MmapArgs {
    pub address: u64,
    pub length: u64,
    pub protection: u32,
    pub flags: u32,
    /// The first byte of the file, a multiple of the page size.
    pub offset: u64,
}

impl MmapArgs {
    fn is_shared(&self) -> bool {
        self.flags & linux::MAP_TYPE != linux::MAP_PRIVATE
    }

    /// Maps a memory object, or fails with its error at the point where Linux does.
    fn map(&self, store: Result<&MemoryObject, Errno>, file: u64, writable: bool) -> Answer {
        let opened = Opened {
            store,
            offset: self.offset,
            file,
            writable,
        };
        let Self {
            address, length, ..
        } = *self;
        space().mmap_object(address, length, self.protection, self.flags, &opened)
    }
}

/// Maps an open file.
///
/// # Errors
/// Those of `mmap`.
pub fn map(description: &Description, wish: &MmapArgs) -> Answer {
    let readable = description.may_read().map_err(|_| EACCES);
    let writable = description.may_write().is_ok();
    match &description.object {
        Object::File(inode) => match &inode.body {
            Body::File(file) => map_file(description, &file.content, wish),
            _ => Err(ENODEV),
        },
        Object::Device(Device::Zero, _) => map_zeroes(description, wish),
        Object::Device(Device::Timer, _) => map_device(description, hpet::device(), wish),
        #[cfg(target_arch = "x86_64")]
        Object::Guest(crate::kvm::Handle::Vcpu(open)) => map_vcpu(description, &open.vcpu, wish),
        _ => wish.map(readable.and(Err(ENODEV)), 0, writable),
    }
}

/// Whether a file's pages are of the pool of huge pages.
pub fn is_pooled(description: &Description) -> bool {
    description
        .file()
        .is_ok_and(|(_, file)| file.content.store.is_pooled())
}

fn map_file(description: &Description, content: &Content, wish: &MmapArgs) -> Answer {
    let source = &content.source;
    if let Some(origin) = description.origin() {
        source.set_origin(origin);
    }
    let readable = description.may_read().map_err(|_| EACCES);
    let store = readable.map(|()| &content.store);
    let writable = description.may_write().is_ok();
    map_unsealed(source, store, description.number, writable, wish)
}

/// Maps a file as its seals allow.
fn map_unsealed(
    source: &Source,
    store: Result<&MemoryObject, Errno>,
    file: u64,
    writable: bool,
    wish: &MmapArgs,
) -> Answer {
    // A file that can be sealed must not be sealed meanwhile.
    let _turn = match source.seals() & seal::SEAL {
        0 => Some(source.turn.take()?),
        _ => None,
    };
    // A file sealed against writes can be mapped shared, but only to be read, for ever.
    let sealed = wish.is_shared() && source.check(seal::NO_WRITES).is_err();
    if sealed && writable && wish.protection & linux::PROT_WRITE != 0 {
        return wish.map(Err(EPERM), file, true);
    }
    wish.map(store, file, writable && !sealed)
}

/// Maps another part of a file that a shared mapping of this process had, and could write, when that was looked up.
///
/// # Errors
/// `EINVAL` for a device; those of `mmap`.
pub fn map_again(wish: &MmapArgs, store: &MemoryObject, file: u64) -> Answer {
    if store.tag() == 0 {
        return wish.map(Ok(store), file, true);
    }
    // SAFETY: The object is held, and its tag was made for it.
    let source = unsafe { source::of(store.tag()) };
    map_unsealed(source, Ok(store), file, true, wish)
}

/// Maps `/dev/zero`: private as anonymous memory, shared as shared anonymous memory.
fn map_zeroes(description: &Description, wish: &MmapArgs) -> Answer {
    let writable = description.may_write().is_ok();
    if description.may_read().is_err() {
        return wish.map(Err(EACCES), 0, writable);
    }
    if !wish.is_shared() {
        let flags = wish.flags | linux::MAP_ANONYMOUS;
        return space().mmap(wish.address, wish.length, wish.protection, flags);
    }
    let size = wish.length.checked_next_multiple_of(content::PAGE);
    let store = MemoryObject::new(memory(), size.unwrap_or(0), None, 0).map_err(|_| ENOMEM)?;
    wish.map(Ok(&store), 0, writable)
}

/// Maps the frames of a device: the registers of `/dev/hpet`, or the run area of a vCPU.
fn map_device(description: &Description, device: Option<&Frames>, wish: &MmapArgs) -> Answer {
    let opened = OpenedDevice {
        device: device.ok_or(ENODEV),
        offset: wish.offset,
        file: description.number,
        writable: description.may_write().is_ok(),
    };
    let MmapArgs {
        address, length, ..
    } = *wish;
    space().mmap_device(address, length, wish.protection, wish.flags, &opened)
}

#[cfg(target_arch = "x86_64")]
/// Maps a vCPU: its run area, or from an offset on its dirty ring.
fn map_vcpu(description: &Description, vcpu: &crate::kvm::vcpu::Vcpu, wish: &MmapArgs) -> Answer {
    if let Some(ring) = &vcpu.dirty {
        let MmapArgs {
            offset,
            length,
            protection,
            ..
        } = *wish;
        let mapped = ring.mapped(offset, length, protection, wish.is_shared())?;
        if let Some((device, offset)) = mapped {
            return map_device(description, Some(device), &MmapArgs { offset, ..*wish });
        }
    }
    map_device(description, Some(vcpu.area.device()), wish)
}

/// `MADV_REMOVE`: punches holes in the files that a range shows.
///
/// # Errors
/// `EINVAL` without a file, or for locked memory; `EACCES` for a mapping that can never be writable; `EPERM`
/// for a sealed file; `ENOMEM` if part of the range was not mapped, after the rest is done.
pub fn remove(address: u64, length: u64) -> Answer {
    let rounded = length.checked_next_multiple_of(content::PAGE);
    let end = rounded.and_then(|length| address.checked_add(length));
    let end = end.ok_or(EINVAL)?;
    if !address.is_multiple_of(content::PAGE) {
        return Err(EINVAL);
    }
    let mut at = address;
    let mut answer = Ok(0);
    while at < end {
        let Some(line) = space().maps_after(at).filter(|line| line.start < end) else {
            return Err(ENOMEM);
        };
        if line.start > at {
            answer = Err(ENOMEM);
        }
        let start = at.max(line.start);
        at = line.end.min(end);
        remove_mapped(start, at)?;
    }
    answer
}

/// The same for a range within one mapping.
fn remove_mapped(start: u64, end: u64) -> Result<(), Errno> {
    let Some((store, first)) = space().object_at(start) else {
        // Without an object, the memory core returns the error.
        return space().madvise(start, end - start, advice::REMOVE);
    };
    let flags = space().lookup(start).ok_or(EINVAL)?.flags;
    if flags.locked != Locked::No {
        return Err(EINVAL);
    }
    if !flags.shared || flags.never_written {
        return Err(EACCES);
    }
    space().report_removal(start..end);
    let last = first.saturating_add(end - start);
    if store.tag() == 0 {
        return or_reclaim(|| store.punch(first..last));
    }
    // SAFETY: The object is held, and its tag was made for it.
    let source = unsafe { source::of(store.tag()) };
    let _turn = source.turn.take()?;
    content::punch(&store, source, first, last)
}
