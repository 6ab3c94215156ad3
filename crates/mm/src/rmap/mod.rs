//! The reverse map: from a page to the entries that map it.
//!
//! * `file`: the mappings of an object, and the removal of its pages from all of them.
//! * `anon`: all address spaces, in which an anonymous page is found through its descriptor.
//! * `claims`: all entries of a page, claimed.
//! * `idle`: whether a page was used in any of them.
//! * `truncate`, `migrate`: operations that have to reach every entry of a page.

pub(crate) mod anon;
pub(crate) mod claims;
pub(crate) mod file;
mod idle;
pub(crate) mod migrate;
mod truncate;
