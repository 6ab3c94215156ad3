//! Flaws that models switch on, to show that they would notice them.
//!
//! The code asks [`mutant`] at the few places on which the proofs hang. In every
//! build but those of models the answer is the constant `false`, and nothing is
//! left of the question.

/// A way to break a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A claim is not followed by the full barrier.
    ClaimWithoutFence,
    /// No fence stands between a writer's change and its look at the entries: not
    /// its own, nor that of the section in which it looks.
    ValidationWithoutFence,
    /// A writer does not wait for the claims that it finds.
    ClaimsNotAwaited,
    /// A present claim is withdrawn by a plain store.
    WithdrawByStore,
    /// A claim is published although the mapping is no longer what it was.
    MappingNotValidated,
    /// A claim is published although the table was unlinked.
    LinkNotValidated,
    /// A whole table moves although entries of it are claimed.
    ClaimedTableMoved,
    /// A whole table moves without a flush of its old place.
    TableMovedWithoutFlush,
    /// A move waits for a claim while it has tables hidden.
    WaitsWithTablesHidden,
    /// A claim is kept although its table lies at other pages by now.
    PlaceNotValidated,
    /// A table is freed without a look at what is in it.
    TableNotScanned,
    /// A table is freed without a second look at what is mapped there.
    VacancyNotAskedAgain,
    /// Who has kept pages in a table until the flush, and has not found it empty, does not look again.
    TablesLookedAtOnce,
    /// No fence stands between what is taken out of a table and the look at what is mapped beside it.
    TablesLookedAtWithoutFence,
    /// A table is freed while CPUs may have it in their walk caches.
    TableNotFlushed,
    /// A table is freed without waiting for those that look into it.
    TableNotRetired,
    /// A section is entered without the full barrier.
    EnterWithoutFence,
    /// What is retired is released after one epoch instead of two.
    OneEpoch,
    /// A node or a split that leaves the tree does not say so.
    NodeNotBuried,
    /// A lock is downgraded by giving it up and taking it again.
    DowngradeByUnlocking,
    /// Something new is put where something else is still being cleared away.
    ZapsNotAwaited,
    /// Something is done at once in a range although somebody has something of it.
    AtOnceBesideHolder,
    /// What other CPUs may hold is flushed on this one alone.
    FlushedHereAlone,
    /// A part of an address space gets locks of its own while somebody is taking pages away there.
    AroundBesideZaps,
    /// Which part of an address space a range belongs to is not asked again once the range is had.
    PartChosenOnce,
    /// Who has ranges of several parts of an address space takes them in the space's own list alone.
    OnePartForAll,
    /// The pages of a mapping that lies in several parts are counted as if they lay in one.
    PagesCountedPlainly,
    /// What others are unlinking still is retired as if nobody could come to it any more.
    RetiredTooEarly,
    /// Those who wait for a range are woken before there is anything new to see.
    WokenWithoutTurn,
    /// A lock is given up without releasing what was written under it.
    UnlockRelaxed,
    /// A fork does not mark the mappings that it has copied.
    ForkWithoutMark,
    /// A fork lets stores go on while it copies: those that TLBs let through.
    ForkWithoutFreeze,
    /// A fault goes on in a table that a fork has yet to copy.
    FrozenIgnored,
    /// The last that leaves a group does not wake what is parked for that.
    LastWakesNobody,
    /// A wait at a gate takes in the present generation alone.
    OneGenerationAwaited,
    /// Who discards pages does not ask whether others moved meanwhile.
    MovesNotCounted,
    /// A move that is shown counts those as shown, too, that began before it and are not.
    ShownThoughOthersAreNot,
    /// A mapping that takes another's place is live before the old pages are gone.
    ReplacedWithoutMark,
    /// A fault takes hold of a mapping without the full barrier (policy `vma-lock`).
    HoldWithoutFence,
    /// A writer locks faults out of a mapping without a fence (policy `vma-lock`).
    LockOutWithoutFence,
    /// A frame that was got ready for a copy is taken for a zeroed one.
    NotZeroedAgain,
    /// A page that was exclusive before the claim is written in place without
    /// another look.
    SharingNotChecked,
    /// A mapping of a shared page stops counting before it is flushed.
    CountedTooShort,
    /// Fork shares a page that somebody has pinned.
    PinsNotTested,
    /// A page is moved although not all its mappings were found, or somebody has pinned it.
    MovedThoughUsed,
    /// A page is copied to another frame while TLBs may still let stores through to it.
    MovedWithoutFlush,
    /// What compaction keeps is not given up to those who find no frame.
    KeptFromOthers,
    /// A page of a store is moved while its slot shows it.
    MovedInPlainSight,
    /// An entry is published without what was written before.
    PublishRelaxed,
    /// A mapping of a shared page stops counting without saying what was done with
    /// the page before.
    CountRelaxed,
    /// A page of a store is mapped although it has left its slot.
    IdentityNotValidated,
    /// A page of a store is counted after it was found in its slot, whether the store still
    /// holds it or not.
    CountedTooLate,
    /// Pages are carried to a mapping that stays where it is in its store's list.
    NotLinkedAgain,
    /// A page of a store is mapped although it is behind the store's end.
    SizeNotValidated,
    /// No fence stands between a page's leaving its slot and the look at the entries: not
    /// the truncation's own, nor that of the section in which it looks.
    TruncateWithoutFence,
    /// Who revokes a device does not wait for what is just being unmapped.
    DeparturesNotAwaited,
    /// A device's mapping is retired by the last who detached some of it.
    DeviceGoneWithFirstFlush,
    /// A space is said to show no probes although one has come since it was looked through.
    ProbesForgotten,
    /// Pages that are taken away are not counted away.
    GoneNotCounted,
    /// Who registers a probe does not wait for who changes what is mapped there.
    ProbeBesideChanges,
    /// A breakpoint is put in place without another look whether its probe is still there.
    ProbeOutlived,
    /// A probe that ends is out of the list before its breakpoints are gone.
    ProbeUnlistedFirst,
    /// An entry is said to be clean while TLBs may remember that it was not.
    LetGoWithoutFlush,
    /// A page that was let go of is taken although it was written since.
    TakenThoughWritten,
    /// Stores are watched for while TLBs may let them through.
    WatchedWithoutFlush,
    /// A table walk uses an entry of another CPU's without a mark that it does.
    LoadNotMarked,
    /// An entry whose accessed bit is cleared keeps its owner.
    OwnerNotTakenAway,
    /// Who is to flush is decided by what an entry held before it was claimed in place.
    HoldersOfFirstLook,
}

#[cfg(any(loom, shuttle))]
std::thread_local! {
    /// All threads of a model run on the thread that runs the test.
    static PRESENT: core::cell::Cell<Option<Mutant>> = const { core::cell::Cell::new(None) };
}

/// Whether the code is to make this mistake.
#[cfg(any(loom, shuttle))]
pub fn mutant(flaw: Mutant) -> bool {
    PRESENT.get() == Some(flaw)
}

/// Whether the code is to make this mistake: never.
#[cfg(not(any(loom, shuttle)))]
#[inline(always)]
pub const fn mutant(_flaw: Mutant) -> bool {
    false
}

/// Runs a model with a flaw in the code.
#[cfg(any(loom, shuttle))]
pub fn with_flaw<R>(flaw: Mutant, model: impl FnOnce() -> R) -> R {
    struct Mended;
    impl Drop for Mended {
        fn drop(&mut self) {
            PRESENT.set(None);
        }
    }
    let _mended = Mended;
    PRESENT.set(Some(flaw));
    model()
}
