//! `vmsplice`: moves bytes between user memory and a pipe. On Linux a pipe may refer to the pages themselves; here
//! the bytes are copied, so the gift of a page (`SPLICE_F_GIFT`) has no effect.

use super::transfer::{check_vector, each, told};
use crate::errno::{Answer, EBADF, EINVAL};
use crate::files::description::Object;
use crate::files::descriptors;

const MOVE: u32 = 1;
const NO_WAIT: u32 = 2;
const MORE: u32 = 4;
const GIFT: u32 = 8;

/// To a pipe that is open for writing, otherwise from it. As on Linux, the call waits until it can move any byte,
/// and then moves what it can without waiting; `O_NONBLOCK` does not count.
pub fn vmsplice(fd: u64, vector: u64, count: u64, flags: u64) -> Answer {
    let flags = flags as u32;
    if flags & !(MOVE | NO_WAIT | MORE | GIFT) != 0 {
        return Err(EINVAL);
    }
    let description = descriptors::current().get(fd)?;
    let writes = description.may_write().is_ok();
    if !writes {
        description.may_read()?;
    }
    if check_vector(vector, count)? == 0 {
        return Ok(0);
    }
    let Object::Pipe(end) = &description.object else {
        return Err(EBADF);
    };
    let may_wait = |done: u64| flags & NO_WAIT == 0 && done == 0;
    if writes {
        told(each(vector, count, |from, length, done| {
            end.write_some(from, length, 1, may_wait(done))
        }))
    } else {
        each(vector, count, |to, length, done| {
            end.read(to, length, may_wait(done))
        })
    }
}
