//! Socket calls: there are no sockets and no network. Programs that ask a name service, or whether a
//! descriptor is a connection, get the errors of a Linux kernel without protocol families.

use linux_raw_sys::general as linux;

use crate::errno::{Answer, EAFNOSUPPORT, EBADF, EINVAL, ENOTSOCK};
use crate::files::description::Object;
use crate::files::descriptors;

/// The bits of a type that hold the kind of socket.
const KIND: u32 = 0xf;
/// Linux's `SOCK_MAX`.
const KINDS: u32 = 11;
/// Linux's `AF_MAX`.
const FAMILIES: u32 = 46;

/// `socket`, `socketpair`.
pub fn create(family: u64, kind: u64) -> Answer {
    let (family, kind) = (family as u32, kind as u32);
    if kind & !(KIND | linux::O_CLOEXEC | linux::O_NONBLOCK) != 0 {
        return Err(EINVAL);
    }
    if family < FAMILIES && kind & KIND >= KINDS {
        return Err(EINVAL);
    }
    Err(EAFNOSUPPORT)
}

/// The error of a socket call on a descriptor, which is never a socket.
pub fn none(fd: u64) -> Answer {
    match &descriptors::current().get(fd)?.object {
        Object::Path(_) => Err(EBADF),
        _ => Err(ENOTSOCK),
    }
}
