//! Breakpoints in a file's pages (Linux: uprobes).
//!
//! * `list`: the probes that are registered, machine-wide.
//! * `space`: what they do to one address space.

pub(crate) mod list;
pub(crate) mod space;
