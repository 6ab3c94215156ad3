//! Changes a file's attributes: size, mode, owner and times.

use linux_raw_sys::general as linux;

use super::path::{self, HERE};
use crate::arch::{time, uaccess};
use crate::errno::{Answer, EBADF, EFBIG, EINVAL, EISDIR, EOPNOTSUPP, EPERM, EROFS, ESPIPE, Errno};
use crate::files::content::LARGEST;
use crate::files::description::{Description, Object};
use crate::files::limit;
use crate::files::node::{Body, Inode, Node};
use crate::files::source::seal;
use crate::files::usage::Writing;
use crate::files::walk::Last;
use crate::files::{descriptors, open, place};
use crate::shared::Shared;

fn size(length: u64) -> Result<u64, Errno> {
    if length > i64::MAX as u64 {
        Err(EINVAL)
    } else {
        Ok(length)
    }
}

fn resize(inode: &Inode, length: u64) -> Answer {
    match &inode.body {
        Body::File(file) => {
            let turn = file.content.source.turn.take()?;
            let done = limit::check_size(file.content.size(), length)
                .and_then(|()| open::truncate(inode, length));
            drop(turn);
            limit::told(done.map(|()| 0))
        }
        Body::Directory(_) => Err(EISDIR),
        _ => Err(EINVAL),
    }
}

pub fn truncate(path: u64, length: u64) -> Answer {
    let length = size(length)?;
    match path::find(HERE, path, Last::Follow)? {
        Node::Memory(inode) => {
            let _writing = Writing::begin(&inode)?;
            resize(&inode, length)
        }
        node if node.is_directory() => Err(EISDIR),
        _ => Err(EINVAL),
    }
}

pub fn ftruncate(fd: u64, length: u64) -> Answer {
    let length = size(length)?;
    let description = descriptors::current().get(fd)?;
    description
        .may_write()
        .map_err(|_| not_writable(&description))?;
    let (inode, _) = description.file()?;
    resize(inode, length)
}

fn not_writable(description: &Description) -> Errno {
    if description.flags() & linux::O_PATH != 0 {
        EBADF
    } else {
        EINVAL
    }
}

/// Reserves memory or punches a hole; Linux's tmpfs supports no other mode either.
pub fn fallocate(fd: u64, mode: u64, offset: u64, length: u64) -> Answer {
    const PUNCH: u32 = linux::FALLOC_FL_PUNCH_HOLE;
    const KEEP: u32 = linux::FALLOC_FL_KEEP_SIZE;
    let description = descriptors::current().get(fd)?;
    if (offset as i64) < 0 || (length as i64) <= 0 {
        return Err(EINVAL);
    }
    if !matches!(mode as u32, 0 | KEEP) && mode as u32 != PUNCH | KEEP {
        return Err(EOPNOTSUPP);
    }
    description.may_write()?;
    if matches!(description.object, Object::Pipe(_) | Object::Stream(_)) {
        return Err(ESPIPE);
    }
    let (inode, file) = description.file().map_err(|_| crate::errno::ENODEV)?;
    let end = offset.checked_add(length).filter(|&end| end <= LARGEST);
    let end = end.ok_or(EFBIG)?;
    if mode as u32 & PUNCH != 0 {
        file.content.punch(offset, end)?;
    } else {
        let turn = file.content.source.turn.take()?;
        // Also if the size stays, as on Linux.
        let done = limit::check_size(file.content.size(), end)
            .and_then(|()| file.content.reserve(offset, end, mode as u32 == KEEP));
        drop(turn);
        limit::told(done.map(|()| 0))?;
    }
    inode.touch();
    Ok(0)
}

/// The inode with the attributes to change.
fn inode(node: Node) -> Result<Shared<Inode>, Errno> {
    match node {
        Node::Memory(inode) => Ok(inode),
        Node::Proc(_) => Err(EPERM),
        Node::Open(_) => Err(EROFS),
    }
}

fn inode_of(fd: u64) -> Result<Shared<Inode>, Errno> {
    let description = descriptors::current().get(fd)?;
    if description.flags() & linux::O_PATH != 0 {
        return Err(EBADF);
    }
    inode(description.node().ok_or(EROFS)?)
}

const FLAGS: u32 = linux::AT_SYMLINK_NOFOLLOW | linux::AT_EMPTY_PATH;

fn inode_at(directory: u64, path: u64, flags: u64) -> Result<Shared<Inode>, Errno> {
    if flags as u32 & !FLAGS != 0 {
        return Err(EINVAL);
    }
    inode(path::find_with(directory, path, flags)?)
}

fn set_mode(inode: &Inode, mode: u64) -> Answer {
    if matches!(inode.body, Body::Link(_)) {
        return Err(EOPNOTSUPP);
    }
    let mode = mode as u32 & 0o7777;
    if let Body::File(file) = &inode.body
        && (inode.meta().permissions ^ mode) & 0o111 != 0
    {
        file.content.source.check(seal::EXECUTE)?;
    }
    inode.change(|meta| meta.permissions = mode);
    Ok(0)
}

pub fn fchmodat(directory: u64, path: u64, mode: u64, flags: u64) -> Answer {
    set_mode(&*inode_at(directory, path, flags)?, mode)
}

pub fn fchmod(fd: u64, mode: u64) -> Answer {
    set_mode(&*inode_of(fd)?, mode)
}

/// An id of -1 leaves that owner unchanged.
fn set_owner(inode: &Inode, user: u64, group: u64) -> Answer {
    inode.change(|meta| {
        if user as u32 != u32::MAX {
            meta.user = user as u32;
        }
        if group as u32 != u32::MAX {
            meta.group = group as u32;
        }
    });
    Ok(0)
}

pub fn fchownat(directory: u64, path: u64, user: u64, group: u64, flags: u64) -> Answer {
    set_owner(&*inode_at(directory, path, flags)?, user, group)
}

pub fn fchown(fd: u64, user: u64, group: u64) -> Answer {
    set_owner(&*inode_of(fd)?, user, group)
}

fn set_times(inode: &Inode, accessed: Option<u64>, modified: Option<u64>) -> Answer {
    inode.change(|meta| {
        meta.accessed = accessed.unwrap_or(meta.accessed);
        meta.modified = modified.unwrap_or(meta.modified);
    });
    Ok(0)
}

const SECOND: u64 = 1_000_000_000;

/// A time; `None`: unchanged.
fn read_time([seconds, nanoseconds]: [i64; 2]) -> Result<Option<u64>, Errno> {
    match nanoseconds {
        now if now == i64::from(linux::UTIME_NOW) => Ok(Some(time::real_now())),
        omit if omit == i64::from(linux::UTIME_OMIT) => Ok(None),
        0..=999_999_999 => {
            // Times before 1970 become 1970.
            let seconds = u64::try_from(seconds).unwrap_or(0);
            let time = seconds.saturating_mul(SECOND);
            Ok(Some(time.saturating_add(nanoseconds as u64)))
        }
        _ => Err(EINVAL),
    }
}

pub fn utimensat(directory: u64, path: u64, times: u64, flags: u64) -> Answer {
    let (accessed, modified) = if times == 0 {
        let now = Some(time::real_now());
        (now, now)
    } else {
        let [first, second]: [[i64; 2]; 2] = uaccess::read(times)?;
        (read_time(first)?, read_time(second)?)
    };
    // A null path means the descriptor itself.
    let inode = if path == 0 {
        inode_of(directory)?
    } else {
        inode_at(directory, path, flags)?
    };
    set_times(&inode, accessed, modified)
}

pub fn utime(path: u64, times: u64) -> Answer {
    let [accessed, modified] = if times == 0 {
        [time::real_now(); 2]
    } else {
        uaccess::read::<[u64; 2]>(times)?.map(|seconds| seconds.saturating_mul(SECOND))
    };
    set_times(&*inode_at(HERE, path, 0)?, Some(accessed), Some(modified))
}

pub fn utimes(path: u64, times: u64) -> Answer {
    let [accessed, modified] = if times == 0 {
        [time::real_now(); 2]
    } else {
        let pairs: [[i64; 2]; 2] = uaccess::read(times)?;
        if pairs.iter().any(|pair| !(0..1_000_000).contains(&pair[1])) {
            return Err(EINVAL);
        }
        pairs.map(|[seconds, micros]| {
            let seconds = u64::try_from(seconds).unwrap_or(0);
            seconds
                .saturating_mul(SECOND)
                .saturating_add(micros as u64 * 1000)
        })
    };
    set_times(&*inode_at(HERE, path, 0)?, Some(accessed), Some(modified))
}

pub fn umask(mask: u64) -> Answer {
    Ok(u64::from(place::current().set_mask(mask as u32)))
}
