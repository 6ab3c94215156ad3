//! Error numbers, as Linux numbers them. A system call returns them negated.

use linux_raw_sys::errno;

pub use faultless_mm::Errno;

macro_rules! numbers {
    ($($name:ident)*) => {
        $(#[doc = concat!("`", stringify!($name), "`.")]
        pub const $name: Errno = Errno(errno::$name as i32);)*
    };
}

numbers! {
    EPERM ENOENT ESRCH EINTR ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT EBUSY
    EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL EMFILE ENOTTY EFBIG ENOSPC ESPIPE EROFS EPIPE ERANGE
    ENAMETOOLONG ENOSYS ENOTEMPTY ELOOP EOPNOTSUPP ETIMEDOUT ETXTBSY
    EDEADLK ENOLCK EOVERFLOW EIO ELIBBAD
}

numbers! {
    ENOTSOCK EAFNOSUPPORT
}

/// Never seen by a program: the call restarts unless a handler without SA_RESTART runs.
pub const RESTART: Errno = Errno(512);
/// Never seen by a program: the call restarts unless a handler runs.
pub const RESTART_IF_NO_HANDLER: Errno = Errno(514);
/// Never seen by a program: unless a handler runs, the call continues with the state that `syscall::restart`
/// keeps.
pub const RESTART_REST: Errno = Errno(516);

/// The result of a system call.
pub type Answer = Result<u64, Errno>;

/// The register value of an answer.
#[inline]
pub fn to_register(answer: Answer) -> u64 {
    match answer {
        Ok(value) => value,
        Err(Errno(number)) => -i64::from(number) as u64,
    }
}
