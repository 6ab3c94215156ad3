//! The kinds of pages that a fault can meet, one file for each.
//!
//! Each gets the entry as the fault found it, and resolves it by the same claim, validate and publish.

pub(crate) mod cow;
pub(crate) mod device;
pub(crate) mod file;
pub(crate) mod guard;
pub(crate) mod huge;
pub(crate) mod huge_object;
pub(crate) mod pool;
pub(crate) mod read_ahead;
pub(crate) mod stack;
pub(crate) mod swap;
pub(crate) mod userfault;
