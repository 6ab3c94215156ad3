//! Reading and writing.

use linux_raw_sys::general as linux;

use crate::arch::uaccess;
use crate::errno::{Answer, EINVAL, EOPNOTSUPP, EPIPE, Errno};
use crate::files::copy;
use crate::files::description::{At, Description, check};
use crate::files::descriptors;
use crate::files::device::randomise;
use crate::files::limit;
use crate::signal::send;

/// The most that one call transfers, as on Linux.
const MOST: u64 = 0x7fff_f000;
/// The most pieces of a vector.
pub const PIECES: u64 = 1024;

pub fn read(fd: u64, to: u64, length: u64) -> Answer {
    let description = descriptors::current().get(fd)?;
    let length = length.min(MOST);
    check(to, length)?;
    description.read(to, length, At::Here)
}

pub fn write(fd: u64, from: u64, length: u64) -> Answer {
    let description = descriptors::current().get(fd)?;
    let length = length.min(MOST);
    check(from, length)?;
    told(description.write(from, length, At::Here))
}

/// Also sends SIGPIPE for a pipe without readers, or SIGXFSZ for a file at the process's limit.
pub fn told(written: Answer) -> Answer {
    if written == Err(EPIPE) {
        send::to_self(linux::SIGPIPE);
    }
    limit::told(written)
}

fn position(position: u64) -> Result<u64, Errno> {
    if position > i64::MAX as u64 {
        Err(EINVAL)
    } else {
        Ok(position)
    }
}

pub fn pread(fd: u64, to: u64, length: u64, at: u64) -> Answer {
    let at = position(at)?;
    let description = descriptors::current().get(fd)?;
    let length = length.min(MOST);
    check(to, length)?;
    description.read(to, length, At::There(at))
}

pub fn pwrite(fd: u64, from: u64, length: u64, at: u64) -> Answer {
    let at = position(at)?;
    let description = descriptors::current().get(fd)?;
    let length = length.min(MOST);
    check(from, length)?;
    told(description.write(from, length, At::There(at)))
}

/// The address and the length of one piece of a vector (`iovec`).
pub fn piece(vector: u64, number: u64) -> Result<[u64; 2], Errno> {
    uaccess::read(vector.wrapping_add(16 * number))
}

/// Checks a vector; returns its total length.
///
/// # Errors
/// `EINVAL`, `EFAULT`.
pub fn check_vector(vector: u64, count: u64) -> Answer {
    if count > PIECES {
        return Err(EINVAL);
    }
    let mut whole = 0u64;
    for number in 0..count {
        let [at, length] = piece(vector, number)?;
        if length > i64::MAX as u64 {
            return Err(EINVAL);
        }
        check(at, length.min(MOST))?;
        whole = whole.saturating_add(length);
    }
    Ok(whole.min(MOST))
}

/// Checks a vector, then calls `one` for each piece until one is done only in part. `one` gets a piece's
/// address, its length, and the number of bytes done before it.
///
/// # Errors
/// Those of the check, or of the first piece.
pub fn each(vector: u64, count: u64, mut one: impl FnMut(u64, u64, u64) -> Answer) -> Answer {
    let mut left = check_vector(vector, count)?;
    let mut total = 0;
    for number in 0..count {
        let done = piece(vector, number).and_then(|[at, length]| {
            let length = length.min(left);
            if length == 0 {
                return Ok((0, 0));
            }
            check(at, length)?;
            one(at, length, total).map(|done| (done, length))
        });
        match done {
            Err(error) if total == 0 => return Err(error),
            Err(_) => break,
            Ok((done, length)) => {
                total += done;
                left -= done;
                if done < length {
                    break;
                }
            }
        }
    }
    Ok(total)
}

fn after(at: At, done: u64) -> At {
    match at {
        At::Here => At::Here,
        At::There(position) => At::There(position.saturating_add(done)),
    }
}

fn read_vector(description: &Description, vector: u64, count: u64, at: At) -> Answer {
    description.may_read()?;
    each(vector, count, |to, length, done| {
        description.read(to, length, after(at, done))
    })
}

fn write_vector(description: &Description, vector: u64, count: u64, at: At) -> Answer {
    description.may_write()?;
    told(each(vector, count, |from, length, done| {
        description.write(from, length, after(at, done))
    }))
}

pub fn readv(fd: u64, vector: u64, count: u64) -> Answer {
    let description = descriptors::current().get(fd)?;
    read_vector(&description, vector, count, At::Here)
}

pub fn writev(fd: u64, vector: u64, count: u64) -> Answer {
    let description = descriptors::current().get(fd)?;
    write_vector(&description, vector, count, At::Here)
}

pub fn preadv(fd: u64, vector: u64, count: u64, at: u64) -> Answer {
    let at = position(at)?;
    let description = descriptors::current().get(fd)?;
    read_vector(&description, vector, count, At::There(at))
}

pub fn pwritev(fd: u64, vector: u64, count: u64, at: u64) -> Answer {
    let at = position(at)?;
    let description = descriptors::current().get(fd)?;
    write_vector(&description, vector, count, At::There(at))
}

/// Flags have no effect here; those that only ask for speed or durability are accepted.
fn check_flags(flags: u64) -> Result<(), Errno> {
    const HIGH_PRIORITY: u64 = 1;
    const DSYNC: u64 = 2;
    const SYNC: u64 = 4;
    if flags & !(HIGH_PRIORITY | DSYNC | SYNC) == 0 {
        Ok(())
    } else {
        Err(EOPNOTSUPP)
    }
}

pub fn preadv2(fd: u64, vector: u64, count: u64, at: u64, flags: u64) -> Answer {
    check_flags(flags)?;
    if at == u64::MAX {
        return readv(fd, vector, count);
    }
    preadv(fd, vector, count, at)
}

pub fn pwritev2(fd: u64, vector: u64, count: u64, at: u64, flags: u64) -> Answer {
    check_flags(flags)?;
    if at == u64::MAX {
        return writev(fd, vector, count);
    }
    pwritev(fd, vector, count, at)
}

pub fn lseek(fd: u64, offset: u64, whence: u64) -> Answer {
    let description = descriptors::current().get(fd)?;
    description.seek(offset as i64, whence as u32)
}

/// Always refused: programs then fall back to `read` and `write`.
pub fn sendfile(to: u64, from: u64, _offset: u64, _count: u64) -> Answer {
    let table = descriptors::current();
    table.get(from)?.may_read()?;
    table.get(to)?.may_write()?;
    Err(EINVAL)
}

pub fn getrandom(to: u64, length: u64, flags: u64) -> Answer {
    let known = linux::GRND_NONBLOCK | linux::GRND_RANDOM | linux::GRND_INSECURE;
    let both = linux::GRND_RANDOM | linux::GRND_INSECURE;
    if flags as u32 & !known != 0 || flags as u32 & both == both {
        return Err(EINVAL);
    }
    let length = length.min(MOST);
    check(to, length)?;
    copy::fill(to, length, randomise)
}
