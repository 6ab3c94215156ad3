//! Memory with a descriptor (`memfd_create`): a file that never had a name in the tree, and that can be
//! sealed.

use faultless_mm::ObjectHuge;
use linux_raw_sys::general as linux;

use super::description::{Description, Object};
use super::directory::Name;
use super::node::{Body, Inode};
use super::origin::Origin;
use super::source::{Kind, seal};
use crate::errno::{EBUSY, EINVAL, EPERM, Errno};
use crate::shared::Shared;

/// Makes a memory file, of pages of the pool of huge pages if it `is_pooled`.
///
/// # Errors
/// `ENOMEM`.
pub fn new(
    name: Name,
    is_pooled: bool,
    (can_be_sealed, sealed_against_exec): (bool, bool),
) -> Result<Shared<Description>, Errno> {
    let permissions = if sealed_against_exec { 0o666 } else { 0o777 };
    let inode = Inode::new_file(Kind::Memory, &[], permissions)?;
    inode.change(|meta| meta.links = 0);
    let origin = Shared::new(Origin::Memory(name))?;
    if let Body::File(file) = &inode.body {
        // As on Linux, the setting is for memory without a name in a file system.
        file.content.store.set_huge_pages(match is_pooled {
            true => ObjectHuge::Pooled,
            false => ObjectHuge::AsSet,
        });
        let source = &file.content.source;
        source.set_origin(&origin);
        if sealed_against_exec {
            source.set_seals(seal::EXECUTE);
        } else if can_be_sealed {
            source.set_seals(0);
        }
    }
    let flags = linux::O_RDWR | linux::O_LARGEFILE;
    // As on Linux, it can be executed although it is open for writing.
    Description::new(Object::File(inode), flags, Some(origin))
}

/// Adds seals to a file.
///
/// # Errors
/// `EPERM` if it was not opened for writing or cannot be sealed (any more); `EINVAL` if it is no file, or for
/// unknown seals; `EBUSY` if it has writable mappings.
pub fn seal(description: &Description, seals: u32) -> Result<(), Errno> {
    description.may_write().map_err(|_| EPERM)?;
    if seals & !seal::ALL != 0 {
        return Err(EINVAL);
    }
    let (inode, file) = description.file()?;
    let source = &file.content.source;
    let _turn = source.turn.take()?;
    source.check(seal::SEAL)?;
    let mut seals = seals;
    if seals & seal::EXECUTE != 0 && inode.meta().permissions & 0o111 != 0 {
        // As on Linux: if it is executable, `F_SEAL_EXEC` seals the content, too.
        seals |= seal::SHRINK | seal::GROW | seal::NO_WRITES;
    }
    let had = source.seals();
    if seals & seal::WRITE != 0 && had & seal::WRITE == 0 && file.content.store.is_mapped_writable()
    {
        return Err(EBUSY);
    }
    source.set_seals(had | seals);
    Ok(())
}
