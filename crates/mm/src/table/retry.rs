//! Why a fault gave up a try: what its steps tell each other.

/// Why a try was given up. Some are fallback reasons, and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// The entry is claimed by another fault.
    EntryClaimed,
    /// The mapping is changing, or changed before validation.
    MappingChanged,
    /// A stack would grow to the page, but for what is being taken away there.
    Zapped,
    /// The table was unlinked, or is being freed.
    TableChanged,
    /// A frame was needed and there was none.
    NoMemory,
    /// The page has left its store.
    PageChanged,
    /// The page has to be read in, or somebody is reading it in.
    NotFilled,
}
