//! One file for each kind of page that a fault can meet.
//!
//! Each gets the claimed-to-be state of one entry and resolves it through the same
//! claim, validate, publish.

pub(crate) mod cow;
pub(crate) mod device;
pub(crate) mod file;
pub(crate) mod guard;
pub(crate) mod stack;
