//! Reading, writing and looking at files.

use core::str;

use linux_raw_sys::general as linux;

use crate::arch::{random, uaccess};
use crate::errno::{
    Answer, EBADF, EFAULT, EINVAL, ENAMETOOLONG, ENOENT, ENOTTY, EPIPE, ERANGE, ESPIPE, Errno,
};
use crate::files::descriptors::{self, Open};
use crate::files::{self, Kind, pipe};
use crate::process;
use crate::signal::send;

/// The most that one call transfers, as on Linux.
const MOST: u64 = 0x7fff_f000;
const NAME: usize = 256;

fn check(address: u64, length: u64) -> Result<(), Errno> {
    if uaccess::range_ok(address, length) {
        Ok(())
    } else {
        Err(EFAULT)
    }
}

pub fn read(fd: u64, to: u64, length: u64) -> Answer {
    let open = descriptors::get(fd)?;
    let length = length.min(MOST);
    check(to, length)?;
    let done = open.kind.read(open.position, to, length)?;
    descriptors::set_position(fd, open.position + done);
    Ok(done)
}

pub fn pread(fd: u64, to: u64, length: u64, position: u64) -> Answer {
    let open = descriptors::get(fd)?;
    check(to, length.min(MOST))?;
    open.kind.read(position, to, length.min(MOST))
}

pub fn write(fd: u64, from: u64, length: u64) -> Answer {
    let open = descriptors::get(fd)?;
    let length = length.min(MOST);
    check(from, length)?;
    let written = open.kind.write(from, length);
    if written == Err(EPIPE) {
        send::to_self(linux::SIGPIPE);
    }
    written
}

/// Does `one` with each piece until one is not done completely.
fn each(vector: u64, count: u64, mut one: impl FnMut(u64, u64) -> Answer) -> Answer {
    if count > 1024 {
        return Err(EINVAL);
    }
    let mut total = 0;
    for number in 0..count {
        let piece: Result<[u64; 2], Errno> = uaccess::read(vector.wrapping_add(16 * number));
        let done = piece.and_then(|[at, length]| one(at, length).map(|done| (done, length)));
        match done {
            Err(error) if total == 0 => return Err(error),
            Err(_) => break,
            Ok((done, length)) => {
                total += done;
                if done < length {
                    break;
                }
            }
        }
    }
    Ok(total)
}

pub fn readv(fd: u64, vector: u64, count: u64) -> Answer {
    descriptors::get(fd)?;
    each(vector, count, |at, length| read(fd, at, length))
}

pub fn writev(fd: u64, vector: u64, count: u64) -> Answer {
    descriptors::get(fd)?;
    each(vector, count, |at, length| write(fd, at, length))
}

/// Reads a path and does something with it. Relative ones begin at the root.
fn with_path<R>(path: u64, f: impl FnOnce(&str) -> Result<R, Errno>) -> Result<R, Errno> {
    let mut buffer = [0; NAME];
    buffer[0] = b'/';
    let length = uaccess::read_string(path, &mut buffer[1..])?.ok_or(ENAMETOOLONG)?;
    if length == 0 {
        return Err(ENOENT);
    }
    let skip = usize::from(buffer[1] == b'/');
    f(str::from_utf8(&buffer[skip..=length]).map_err(|_| ENOENT)?)
}

pub fn open(path: u64, flags: u64) -> Answer {
    let write = flags as u32 & linux::O_ACCMODE != linux::O_RDONLY;
    let kind = with_path(path, |path| files::open(path, write))?;
    descriptors::add(Open { kind, position: 0 }, 0)
}

pub fn openat(_folder: u64, path: u64, flags: u64) -> Answer {
    open(path, flags)
}

pub fn close(fd: u64) -> Answer {
    descriptors::close(fd)
}

pub fn lseek(fd: u64, offset: u64, whence: u64) -> Answer {
    let open = descriptors::get(fd)?;
    let size = open.kind.length().ok_or(ESPIPE)?;
    let base = match whence as u32 {
        linux::SEEK_SET => 0,
        linux::SEEK_CUR => open.position,
        linux::SEEK_END => size as u64,
        _ => return Err(EINVAL),
    };
    let position = (base as i64)
        .checked_add(offset as i64)
        .filter(|&at| at >= 0)
        .ok_or(EINVAL)?;
    descriptors::set_position(fd, position as u64);
    Ok(position as u64)
}

fn put_stat(kind: &Kind, to: u64) -> Answer {
    let (mode, size) = match kind {
        Kind::File(content) => (0o100_555, content.len()),
        Kind::Text(_) => (0o100_444, 0),
        _ => (0o020_666, 0),
    };
    let mut words = [0u64; 18];
    words[1] = 1; // inode
    words[2] = 1; // links
    words[3] = mode; // and user 0
    words[6] = size as u64;
    words[7] = 4096;
    words[8] = (size as u64).div_ceil(512);
    uaccess::write(to, &words)?;
    Ok(0)
}

pub fn fstat(fd: u64, to: u64) -> Answer {
    put_stat(&descriptors::get(fd)?.kind, to)
}

pub fn stat(path: u64, to: u64) -> Answer {
    let kind = with_path(path, |path| files::open(path, false))?;
    put_stat(&kind, to)
}

pub fn newfstatat(fd: u64, path: u64, to: u64, flags: u64) -> Answer {
    if flags as u32 & linux::AT_EMPTY_PATH != 0 && uaccess::read::<u8>(path) == Ok(0) {
        return fstat(fd, to);
    }
    stat(path, to)
}

pub fn access(path: u64) -> Answer {
    with_path(path, |path| files::open(path, false)).map(|_| 0)
}

pub fn readlink(path: u64, to: u64, length: u64) -> Answer {
    with_path(path, |path| match path {
        "/proc/self/exe" => {
            let program = process::current().program();
            let target = program.path.as_bytes();
            let length = target.len().min(length as usize);
            uaccess::write_bytes(to, &target[..length])?;
            Ok(length as u64)
        }
        path => files::open(path, false).and(Err(EINVAL)),
    })
}

pub fn getcwd(to: u64, length: u64) -> Answer {
    if length < 2 {
        return Err(ERANGE);
    }
    uaccess::write_bytes(to, b"/\0")?;
    Ok(2)
}

pub fn ioctl(fd: u64) -> Answer {
    descriptors::get(fd)?;
    Err(ENOTTY)
}

pub fn fcntl(fd: u64, command: u64, argument: u64) -> Answer {
    let open = descriptors::get(fd)?;
    match command as u32 {
        linux::F_DUPFD | linux::F_DUPFD_CLOEXEC => {
            if argument as usize >= descriptors::MOST {
                return Err(EINVAL);
            }
            descriptors::add(open, argument as usize)
        }
        linux::F_GETFL => Ok(match open.kind {
            Kind::Console(_) => u64::from(linux::O_WRONLY),
            _ => u64::from(linux::O_RDONLY),
        }),
        linux::F_GETFD | linux::F_SETFD | linux::F_SETFL => Ok(0),
        _ => Err(EINVAL),
    }
}

pub fn pipe(to: u64) -> Answer {
    let (read, write) = pipe::new()?;
    let read = descriptors::add(
        Open {
            kind: Kind::PipeRead(read),
            position: 0,
        },
        0,
    )?;
    let write = match descriptors::add(
        Open {
            kind: Kind::PipeWrite(write),
            position: 0,
        },
        0,
    ) {
        Ok(write) => write,
        Err(error) => {
            descriptors::close(read)?;
            return Err(error);
        }
    };
    uaccess::write(to, &[read as u32, write as u32])?;
    Ok(0)
}

pub fn dup(fd: u64) -> Answer {
    descriptors::add(descriptors::get(fd)?, 0)
}

pub fn dup2(fd: u64, to: u64) -> Answer {
    let open = descriptors::get(fd)?;
    if to as usize >= descriptors::MOST {
        return Err(EBADF);
    }
    descriptors::put(open, to)
}

pub fn getrandom(to: u64, length: u64, _flags: u64) -> Answer {
    let length = length.min(MOST);
    check(to, length)?;
    files::fill(to, length, |chunk| {
        for bytes in chunk.chunks_mut(8) {
            bytes.copy_from_slice(&random::next().to_le_bytes()[..bytes.len()]);
        }
    })
}
