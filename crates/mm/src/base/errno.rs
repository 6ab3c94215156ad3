//! Linux's error numbers, as far as memory operations return them.

use core::fmt;

use faultless_frames::NoMemory;

/// An error of a system call, by its Linux number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident = $number:literal: $text:literal,)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno($number);)*

            const fn describe(self) -> (&'static str, &'static str) {
                match self.0 {
                    $($number => (stringify!($name), $text),)*
                    _ => ("unknown", "unknown error"),
                }
            }
        }
    };
}

errnos! {
    EPERM = 1: "operation not permitted",
    ENOENT = 2: "no such mapping",
    ESRCH = 3: "no such process",
    EINTR = 4: "interrupted",
    EIO = 5: "input/output error",
    ENXIO = 6: "not offered here",
    EAGAIN = 11: "resource temporarily unavailable",
    ENOMEM = 12: "cannot allocate memory, or no mapping there",
    EACCES = 13: "permission denied",
    EFAULT = 14: "bad address",
    EBUSY = 16: "resource busy",
    EEXIST = 17: "a mapping exists there",
    ENODEV = 19: "this kind of mapping is not supported",
    EINVAL = 22: "invalid argument",
    EOVERFLOW = 75: "value too large",
    EOPNOTSUPP = 95: "operation not supported",
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.describe().1)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.describe().0, self.0)
    }
}

impl core::error::Error for Errno {}

impl From<NoMemory> for Errno {
    fn from(_: NoMemory) -> Self {
        Errno::ENOMEM
    }
}
