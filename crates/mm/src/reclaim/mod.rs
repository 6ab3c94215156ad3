//! Reclaims frames: lazily freed pages, and compaction.

pub(crate) mod compact;
pub(crate) mod lazyfree;
