//! The reasons to give up an attempt at an entry, passed between the steps of a fault.

/// The reason for giving up an attempt, with nothing changed. Some are fallback reasons, and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// The entry has changed, or is claimed.
    EntryClaimed,
    /// The mapping is changing, or changed before validation.
    MappingChanged,
    /// The table was unlinked, or is being freed.
    TableChanged,
    /// The page has left its object.
    PageChanged,
    /// A blocker has to be waited for first.
    Wait(Blocker),
}

/// What a fault waits for with nothing held: no lock, no claim, no section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocker {
    /// A frame was needed, and none was free.
    Memory,
    /// The page has to be read in, or is being read in.
    Page,
    /// The page has to be read from its swap device.
    Swap,
    /// A stack could grow to the page, but for a zap in progress there.
    Zap,
    /// The handler of a userfaultfd has to resolve the fault.
    Handler,
    /// A fork has not copied the page's table yet.
    Fork,
}
