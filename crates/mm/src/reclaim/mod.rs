//! Reclaims frames: lazily freed pages, pages that are swapped out, and compaction.

pub(crate) mod compact;
pub(crate) mod lazyfree;
pub(crate) mod page_out;
