//! Waiting for descriptors. All of them are always ready, so only timeouts ever wait.

use super::time;
use crate::arch::uaccess;
use crate::errno::{Answer, EINVAL};
use crate::files::Kind;
use crate::files::descriptors;

const READABLE: u16 = 0x1;
const WRITABLE: u16 = 0x4;
const INVALID: u16 = 0x20;

fn ready(list: u64, count: u64) -> Answer {
    if count > 1024 {
        return Err(EINVAL);
    }
    let mut found = 0;
    for number in 0..count {
        let at = list.wrapping_add(8 * number);
        let [fd, events]: [u32; 2] = uaccess::read(at)?;
        let events = events as u16;
        let answer = match (fd as i32, descriptors::get(u64::from(fd))) {
            (..0, _) => 0,
            (_, Err(_)) => INVALID,
            (_, Ok(open)) => match open.kind {
                Kind::Console(_) => events & WRITABLE,
                _ => events & (READABLE | WRITABLE),
            },
        };
        found += u64::from(answer != 0);
        uaccess::write(
            at.wrapping_add(4),
            &(u32::from(events) | u32::from(answer) << 16),
        )?;
    }
    Ok(found)
}

pub fn poll(list: u64, count: u64, milliseconds: u64) -> Answer {
    let found = ready(list, count)?;
    if found == 0 && milliseconds as i32 != 0 {
        let wait = (milliseconds as i32 > 0).then(|| milliseconds as u32 as u64 * 1_000_000);
        time::sleep_for(wait)?;
    }
    Ok(found)
}

pub fn ppoll(list: u64, count: u64, timeout: u64) -> Answer {
    let found = ready(list, count)?;
    let wait = if timeout == 0 {
        None
    } else {
        Some(time::read_timespec(timeout)?)
    };
    if found == 0 && wait != Some(0) {
        time::sleep_for(wait)?;
    }
    Ok(found)
}
