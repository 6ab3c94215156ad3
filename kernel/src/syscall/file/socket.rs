//! Sockets: there are none, and no network. Programs that would ask a name service, or whether what
//! they read is a connection, get the answers of a Linux that has no family of protocols.

use linux_raw_sys::general as linux;

use crate::errno::{Answer, EAFNOSUPPORT, EBADF, EINVAL, ENOTSOCK};
use crate::files::description::Object;
use crate::files::descriptors;

/// The bits of a type that say what kind of socket is meant.
const KIND: u32 = 0xf;
/// More kinds than there are.
const KINDS: u32 = 11;
/// More families than there are.
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

/// What is to be done with a descriptor that is no socket.
pub fn none(fd: u64) -> Answer {
    match &descriptors::current().get(fd)?.object {
        Object::Path(_) => Err(EBADF),
        _ => Err(ENOTSOCK),
    }
}
