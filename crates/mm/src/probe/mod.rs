//! Breakpoints in a file's pages (Linux: uprobes).
//!
//! * `list`: the registered probes, machine-wide.
//! * `space`: how they are applied to one address space.

pub(crate) mod list;
pub(crate) mod space;
