//! Processes: their numbers, groups and sessions, and waiting for children.

use linux_raw_sys::general as linux;

use super::{pidfd, resource};
use crate::arch::uaccess;
use crate::errno::{Answer, EINVAL, ESRCH, Errno};
use crate::process::wait::{Child, Kind, Wanted, Which, wait};
use crate::process::{INIT, current, family};

pub fn getpid() -> Answer {
    Ok(u64::from(current().id))
}

pub fn getppid() -> Answer {
    let own = current().id;
    let parent = family::with(|family| family.get(own).map_or(INIT, |entry| entry.parent));
    Ok(u64::from(parent))
}

/// Calls `f` with the entry of a process, 0 being the current one.
fn of<R>(id: u64, f: impl FnOnce(&mut family::Entry) -> R) -> Result<R, Errno> {
    let id = match id as u32 {
        0 => current().id,
        id => id,
    };
    family::with(|family| family.get(id).map(f)).ok_or(ESRCH)
}

pub fn getpgid(id: u64) -> Answer {
    of(id, |entry| u64::from(entry.group))
}

pub fn getsid(id: u64) -> Answer {
    of(id, |entry| u64::from(entry.session))
}

pub fn setpgid(id: u64, group: u64) -> Answer {
    let own = current().id;
    if (group as i32) < 0 {
        return Err(EINVAL);
    }
    let or = |value: u64, default: u32| match value as u32 {
        0 => default,
        value => value,
    };
    let id = or(id, own);
    family::with(|family| family.set_group(own, id, or(group, id)))?;
    Ok(0)
}

pub fn setsid() -> Answer {
    family::with(|family| family.set_session(current().id)).map(u64::from)
}

fn kind(options: u32) -> Kind {
    if options & linux::__WALL != 0 {
        Kind::All
    } else if options & linux::__WCLONE != 0 {
        Kind::Clones
    } else {
        Kind::Usual
    }
}

/// Options of both calls that select children.
const COMMON: u32 = linux::__WNOTHREAD | linux::__WCLONE | linux::__WALL;

pub fn wait4(id: u64, status: u64, options: u64, usage: u64) -> Answer {
    let options = options as u32;
    if options & !(linux::WNOHANG | linux::WUNTRACED | linux::WCONTINUED | COMMON) != 0 {
        return Err(EINVAL);
    }
    let which = match id as i32 {
        -1 => Which::Any,
        0 => Which::Group(getpgid(0)? as u32),
        i32::MIN => return Err(ESRCH),
        id if id < 0 => Which::Group(id.unsigned_abs()),
        id => Which::Process(id as u32),
    };
    let wanted = Wanted {
        which,
        kind: kind(options),
        ended: true,
        stopped: options & linux::WUNTRACED != 0,
        continued: options & linux::WCONTINUED != 0,
        stay: false,
    };
    let Some(child) = wait(&wanted, options & linux::WNOHANG == 0)? else {
        return Ok(0);
    };
    if status != 0 {
        uaccess::write(status, &child.status)?;
    }
    if usage != 0 {
        resource::write_usage(usage, &child.usage)?;
    }
    Ok(u64::from(child.id))
}

pub fn waitid(by: u64, id: u64, info: u64, options: u64, usage: u64) -> Answer {
    let options = options as u32;
    let states = linux::WEXITED | linux::WSTOPPED | linux::WCONTINUED;
    let known = states | linux::WNOHANG | linux::WNOWAIT | COMMON;
    if options & !known != 0 || options & states == 0 {
        return Err(EINVAL);
    }
    let which = match by as u32 {
        linux::P_ALL => Which::Any,
        linux::P_PID if id as i32 > 0 => Which::Process(id as u32),
        linux::P_PIDFD => Which::Process(pidfd::process(id)?.id),
        linux::P_PGID if id as i32 > 0 => Which::Group(id as u32),
        linux::P_PGID if id as i32 == 0 => Which::Group(getpgid(0)? as u32),
        _ => return Err(EINVAL),
    };
    let wanted = Wanted {
        which,
        kind: kind(options),
        ended: options & linux::WEXITED != 0,
        stopped: options & linux::WSTOPPED != 0,
        continued: options & linux::WCONTINUED != 0,
        stay: options & linux::WNOWAIT != 0,
    };
    let found = wait(&wanted, options & linux::WNOHANG == 0)?;
    if let (Some(child), true) = (&found, usage != 0) {
        resource::write_usage(usage, &child.usage)?;
    }
    if info != 0 {
        uaccess::write(info, &describe(found.as_ref()))?;
    }
    Ok(0)
}

/// The `siginfo_t` of a child; all zero for none.
fn describe(child: Option<&Child>) -> [u32; 32] {
    let mut words = [0; 32];
    let Some(child) = child else {
        return words;
    };
    let status = child.status;
    let (code, value) = match status & 0x7f {
        _ if status == 0xffff => (linux::CLD_CONTINUED, linux::SIGCONT),
        0 => (linux::CLD_EXITED, status >> 8),
        0x7f if child.is_trapped => (linux::CLD_TRAPPED, status >> 8),
        0x7f => (linux::CLD_STOPPED, status >> 8),
        signal => (linux::CLD_KILLED, signal),
    };
    words[0] = linux::SIGCHLD;
    words[2] = code;
    words[4] = child.id;
    words[6] = value;
    words
}
