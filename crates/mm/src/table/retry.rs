//! Why a try at an entry was given up: what the steps of a fault tell each other.

/// Why a try was given up, with nothing changed. Some are fallback reasons, and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// The entry is claimed by another fault.
    EntryClaimed,
    /// The mapping is changing, or changed before validation.
    MappingChanged,
    /// The table was unlinked, or is being freed.
    TableChanged,
    /// The page has left its object.
    PageChanged,
    /// Something has to be waited for first.
    Wait(Blocker),
}

/// What a fault waits for with nothing held: no lock, no claim, no section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocker {
    /// A frame was needed and there was none.
    Memory,
    /// The page has to be read in, or is being read in.
    Page,
    /// A stack would grow to the page, but for what is being zapped there.
    Zap,
    /// A fork has not copied the page's table yet.
    Fork,
}
