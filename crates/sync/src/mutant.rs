//! Flaws that models switch on, to show that they would notice them.
//!
//! The code calls [`mutant`] at the few places on which the proofs depend. In all builds except models the
//! answer is the constant `false`, and the compiler removes the call.

/// A way to break a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A claim is not followed by the full barrier.
    ClaimWithoutFence,
    /// No fence stands between a writer's change and its look at the entries: neither the writer's own, nor
    /// that of the section in which it looks.
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
    /// A claim is kept although its table has moved to other pages.
    PlaceNotValidated,
    /// A table is freed without a scan of its entries.
    TableNotScanned,
    /// A table is freed without a second check of what is mapped there.
    VacancyNotAskedAgain,
    /// A zap that kept pages in a table until the flush does not check again whether the table is empty.
    TablesLookedAtOnce,
    /// No fence stands between zapping entries of a table and looking at what is mapped beside them.
    TablesLookedAtWithoutFence,
    /// A table is freed while CPUs may have it in their walk caches.
    TableNotFlushed,
    /// A table is freed without waiting for the readers that walk it.
    TableNotRetired,
    /// A read section is entered without the full barrier.
    EnterWithoutFence,
    /// A retired object is released after one epoch instead of two.
    OneEpoch,
    /// A node or a split that leaves the tree is not marked as retired.
    NodeNotBuried,
    /// A lock is downgraded by releasing and reacquiring it.
    DowngradeByUnlocking,
    /// A new mapping is installed where old pages are still being zapped.
    ZapsNotAwaited,
    /// A brief operation runs in a range although another request has a part of it.
    AtOnceBesideHolder,
    /// Translations that other CPUs may hold are flushed on this CPU alone.
    FlushedHereAlone,
    /// A shard is created around existing mappings while pages are being zapped there.
    AroundBesideZaps,
    /// The lock domain of a range is not checked again once the range is held.
    PartChosenOnce,
    /// A writer across several lock domains takes its range in the space's own list alone.
    OnePartForAll,
    /// The pages of a mapping in several lock domains are counted as if the mapping were in one.
    PagesCountedPlainly,
    /// An object that other writers are still unlinking is retired as if no new reader could find it.
    RetiredTooEarly,
    /// Waiters for a range are woken although the word on which they park has not changed.
    WokenWithoutTurn,
    /// A lock is released without release ordering of what was written under it.
    UnlockRelaxed,
    /// A fork does not mark as changing the mappings that it has copied.
    ForkWithoutMark,
    /// A fork copies while TLBs still let stores through.
    ForkWithoutFreeze,
    /// A fault proceeds in a table that a fork has not copied yet.
    FrozenIgnored,
    /// A table takes the place of a huge page before its translation is flushed, where both must not be in a TLB.
    SplitNotFlushed,
    /// Mapping a huge page validates only the slot of the page that faulted.
    SpanNotValidated,
    /// The table for the split of a huge page is taken before the page's entry is claimed.
    DepositTakenBeforeClaim,
    /// The parts of a huge page that is split say no more than its entry did before the claim.
    PartsAsRead,
    /// A collapse does not look for claims in the table that it hides.
    CollapsedBesideClaims,
    /// A collapse empties the table that it replaces.
    CollapsedTableEmptied,
    /// A huge page takes the place of a table that is not looked at under the claim of its link.
    VacatedNotLookedAtAgain,
    /// A space leaves a shared huge page before it counts itself at the frames.
    PartsCountedTooLate,
    /// A huge page is made writable although another space may use a frame of it.
    HugeTakenOverUnasked,
    /// A page leaves a huge page of an object, and that stays marked as whole.
    WholeNotEnded,
    /// A huge page of an object is marked as whole without a second look at its pages.
    WholeNotValidated,
    /// A huge page of an object is mapped whether it is still whole or not.
    WholeNotAsked,
    /// The huge zero page is replaced while TLBs may still hold it.
    HugeZeroNotFlushed,
    /// The last leave of a group does not wake the parked waiter.
    LastWakesNone,
    /// A wait at a gate covers the current generation alone.
    OneGenerationAwaited,
    /// A discard of pages does not check whether pages moved meanwhile.
    MovesNotCounted,
    /// A move that is shown also counts earlier moves as shown that are not.
    ShownThoughOthersAreNot,
    /// A mapping that replaces another is live before the old pages are gone.
    ReplacedWithoutMark,
    /// A fault read-locks a mapping without the full barrier (policy `vma-lock`).
    HoldWithoutFence,
    /// A writer locks faults out of a mapping without a fence (policy `vma-lock`).
    LockOutWithoutFence,
    /// A frame that was prepared for a copy is used as a zeroed one.
    NotZeroedAgain,
    /// A page that was exclusive before the claim is written in place without another check.
    SharingNotChecked,
    /// The map count of a shared page is lowered before the mapping is flushed.
    CountedTooShort,
    /// Fork shares a pinned page.
    PinsNotTested,
    /// A page is migrated although not all its mappings were found, or although it is pinned.
    MovedThoughUsed,
    /// A page is copied to another frame while TLBs may still let stores through to it.
    MovedWithoutFlush,
    /// Frames that compaction has isolated are not released to allocations that find no frame.
    KeptFromOthers,
    /// A page of a memory object is migrated while its slot shows it.
    MovedInPlainSight,
    /// An entry is published without release ordering of what was written before.
    PublishRelaxed,
    /// The map count of a shared page is lowered without ordering of what was done with the page before.
    CountRelaxed,
    /// A page of a memory object is mapped although it has left its slot.
    IdentityNotValidated,
    /// A page of a memory object is counted as mapped after it was validated in its slot, whether or not the
    /// object still holds it.
    CountedTooLate,
    /// Pages move to a mapping that keeps its place in its memory object's list.
    NotLinkedAgain,
    /// A page of a memory object is mapped although it is beyond the object's end.
    SizeNotValidated,
    /// No fence stands between a page's removal from its slot and the look at the entries: neither the
    /// truncation's own, nor that of the section in which it looks.
    TruncateWithoutFence,
    /// The revocation of a device does not wait for pending unmaps.
    DeparturesNotAwaited,
    /// A device's mapping is retired with the first flush, while other pending unmaps of it are not flushed.
    DeviceGoneWithFirstFlush,
    /// A space is marked as showing no probes although one was added since the scan of the space.
    ProbesForgotten,
    /// Zapped pages are not subtracted from the resident counts.
    GoneNotCounted,
    /// The registration of a probe does not wait for writers that change what is mapped there.
    ProbeBesideChanges,
    /// A breakpoint is put in place without another check that its probe is still registered.
    ProbeOutlived,
    /// A probe that ends leaves the list before its breakpoints are removed.
    ProbeUnlistedFirst,
    /// An entry is marked clean while TLBs may still hold it as dirty.
    LetGoWithoutFlush,
    /// A page is swapped out while TLBs may still hold it.
    SwappedWithoutFlush,
    /// The sweep takes a page without a look at its mapping and its table after the claim.
    SweptWithoutValidation,
    /// A swap-in reads a slot of which it has no use.
    SlotNotHeld,
    /// A lazily freed page is reclaimed although it was written since.
    TakenThoughWritten,
    /// Soft-dirty tracking begins while TLBs may still let stores through.
    WatchedWithoutFlush,
    /// A table walk uses an entry that another CPU owns without marking that it does.
    LoadNotMarked,
    /// An entry keeps its owner when its accessed bit is cleared.
    OwnerNotTakenAway,
    /// No fence stands between the announcement of an idle CPU and its last look at the queues.
    HaltWithoutFence,
    /// No fence stands between queueing work and the look for an idle CPU.
    QueuedWithoutFence,
    /// An idle CPU halts although it was taken while it polled.
    HaltThoughTaken,
    /// The CPUs to flush are chosen by the value of an entry before it was claimed in place.
    HoldersOfFirstLook,
    /// A swap slot is free before its content is discarded.
    SlotFreedBeforeDiscard,
    /// A space that ends does not wait for the walk that is in it.
    VisitsNotAwaited,
    /// A fault takes the frame of a page that a swap device did not take, though another entry needs it.
    KeptFrameShared,
    /// A page-out takes a slot of a swap device that leaves.
    LeavingDeviceUsed,
    /// The uses of a swap slot are lowered without ordering of what was read through them.
    UsesRelaxed,
    /// A fault that has entered the queue of its handler parks without another look at its entry.
    NotLookedAgain,
    /// A registration with a userfaultfd that ends does not wait for claims before it clears write protection.
    UnregisteredBesideClaims,
    /// Write protection puts no marker into an entry that another CPU has emptied meanwhile.
    EmptiedLeftUnmarked,
    /// The last object in use of a group of compressed pages is given back without the lock.
    LastObjectGivenBack,
    /// A CPU gives up a cluster of swap slots without a second look at its free slots.
    ClusterGivenUpBlindly,
    /// A guest publishes a page without a second look at the host's entry.
    HostNotValidated,
    /// A guest publishes a page although its slots have changed.
    SlotsNotValidated,
    /// The host flushes without telling its guests.
    GuestsNotTold,
    /// The dirty log is cleared without a flush of the guest.
    LogClearedWithoutFlush,
    /// What is zapped in a guest is not put into its dirty log.
    ZappedNotLogged,
    /// The host does not flush a guest from which another operation has taken a page away.
    OthersNotFlushed,
    /// A mark of a dirty log moves from an entry to a bit without a claim of the entry.
    MarkMovedWithoutClaim,
    /// It moves to the log of slots that have been replaced.
    MarkMovedToOldLog,
    /// A page is pushed into a ring with its flag before its number.
    FlagBeforePage,
    /// A place of a ring is free before it was read.
    PlaceFreedEarly,
    /// A page is pushed into a ring before its entry is claimed.
    PushedBeforeClaim,
    /// The host does not look at the entries of a slot that leaves.
    LeavingNotFollowed,
    /// A guest's huge page is split by a store, whatever its entry holds meanwhile.
    GuestSplitByStore,
    /// What looks at a guest's huge page does not look again at the table that has taken its place.
    GuestSplitNotSeen,
    /// The fast path makes a guest's huge page writable.
    HugeMadeWritable,
    /// A huge page takes the place of a guest's table without a flush.
    ReplacedTableNotFlushed,
}

#[cfg(any(loom, shuttle))]
std::thread_local! {
    /// Thread-local, because all threads of a model run on the thread that runs the test.
    static PRESENT: core::cell::Cell<Option<Mutant>> = const { core::cell::Cell::new(None) };
}

/// Whether the code is to have this flaw.
#[cfg(any(loom, shuttle))]
pub fn mutant(flaw: Mutant) -> bool {
    PRESENT.get() == Some(flaw)
}

/// Whether the code is to have any flaw.
#[cfg(any(loom, shuttle))]
pub fn is_flawed() -> bool {
    PRESENT.get().is_some()
}

/// Whether the code is to have this flaw: never.
#[cfg(not(any(loom, shuttle)))]
#[inline(always)]
pub const fn mutant(_flaw: Mutant) -> bool {
    false
}

/// Runs a model with a flaw switched on.
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
