//! What a mapping's userfaultfd is asked for, and other properties of a userfaultfd, with Linux's numbers.
#![allow(missing_docs)]

/// Accesses to pages that are missing wait for the handler (`UFFDIO_REGISTER_MODE_MISSING`).
pub const MISSING: u64 = 1;
/// Stores to write-protected pages wait for the handler (`UFFDIO_REGISTER_MODE_WP`).
pub const WRITE_PROTECT: u64 = 2;
/// Accesses to pages that the object has, and the tables do not, wait for it (`UFFDIO_REGISTER_MODE_MINOR`).
pub const MINOR: u64 = 4;
pub const MODES: u64 = MISSING | WRITE_PROTECT | MINOR;

/// Features (`UFFD_FEATURE_*`) of which the core knows.
pub const EVENT_FORK: u64 = 1 << 1;
pub const EVENT_REMAP: u64 = 1 << 2;
pub const EVENT_REMOVE: u64 = 1 << 3;
pub const EVENT_UNMAP: u64 = 1 << 6;
pub const SIGBUS: u64 = 1 << 7;
pub const THREAD_ID: u64 = 1 << 8;
pub const EXACT_ADDRESS: u64 = 1 << 11;
pub const WP_OBJECTS: u64 = 1 << 12;
pub const WP_UNPOPULATED: u64 = 1 << 13;
pub const WP_ASYNC: u64 = 1 << 15;
/// No feature of Linux: accesses by the kernel are errors (`UFFD_USER_MODE_ONLY`).
pub const USER_MODE_ONLY: u64 = 1 << 63;
/// Features that mean something to the port alone.
pub const OF_PORT: u64 = 0xff << 48;
/// The handler has gone: nothing waits for it.
pub(crate) const CLOSED: u64 = 1 << 62;

/// Flags of a fault's message (`UFFD_PAGEFAULT_FLAG_*`).
pub const FLAG_WRITE: u64 = 1;
pub const FLAG_WRITE_PROTECT: u64 = 2;
pub const FLAG_MINOR: u64 = 4;
