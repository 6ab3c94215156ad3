//! Getting frames back: lazily freed pages, compaction, and the frames it isolates.

pub(crate) mod compact;
pub(crate) mod lazyfree;
