//! Why a fault gave up a try: what its steps tell each other.

/// Why a try was given up. Each but the last is a fallback reason, and a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withdrawn {
    /// The entry is claimed by another fault.
    EntryClaimed,
    /// The mapping is changing, or changed before validation.
    MappingChanged,
    /// The table was unlinked, or is being freed.
    TableChanged,
    /// A frame was needed and there was none.
    NoMemory,
}
