//! The frame audit: checks that every frame has exactly one use.
//!
//! An audit finds leaks on a machine at rest. Each user of frames enters them: the allocator its free ones,
//! address spaces their pages and tables, and slabs and the port theirs. A frame that is not entered is lost;
//! a frame that is entered for two uses is an error.
//!
//! The entries are in fields of the descriptors that nothing else reads. So an audit needs no memory, and
//! works when there is none.

use core::fmt;

use faultless_paging::{ENTRIES, Frame};
use faultless_sync::atomic::Ordering;

use crate::buddy::Range;
use crate::descriptor::{Descriptor, Flags};

/// The use for which a frame is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use(u32);

/// The number of uses.
const USES: usize = 32;

impl Use {
    /// Lost, with no known last use.
    const UNKNOWN: Use = Use(0);
    /// In the free lists.
    pub const FREE: Use = Use(1);
    /// In a CPU's cache.
    pub const CACHED: Use = Use(2);
    /// In a CPU's cache, filled with zeroes.
    pub const ZEROED: Use = Use(3);
    /// The shared zero page.
    pub const ZERO_PAGE: Use = Use(4);
    /// A page of anonymous memory; entered once for each mapping.
    pub const PAGE: Use = Use(5);
    /// A page table.
    pub const TABLE: Use = Use(6);
    /// Small objects; entered once for each object in use.
    pub const SLAB: Use = Use(7);

    /// The structures of an address space.
    pub const SPACE: Use = Use(8);

    /// A page of a file, or of shared memory; entered once for each mapping, and once by its holder.
    pub const FILE: Use = Use(9);

    /// A page that is pinned and no longer mapped.
    pub const PINNED: Use = Use(10);

    /// Swapped-out pages in memory, and the tables of swap devices.
    pub const SWAP: Use = Use(11);

    /// Returns the port's own use of this number, below 16.
    pub const fn of_port(purpose: u32) -> Use {
        Use(16 + (purpose & 15))
    }

    /// Returns the apparent last use of a frame.
    fn last(flags: Flags) -> Use {
        if let Some(purpose) = flags.port() {
            Self::of_port(purpose)
        } else if flags.has(Flags::ANONYMOUS) {
            Self::PAGE
        } else if flags.has(Flags::TABLE) {
            Self::TABLE
        } else if flags.has(Flags::SLAB) {
            Self::SLAB
        } else if flags.has(Flags::SPACE) {
            Self::SPACE
        } else if flags.has(Flags::FILE) {
            Self::FILE
        } else if flags.has(Flags::SWAP) {
            Self::SWAP
        } else {
            Self::UNKNOWN
        }
    }

    fn may_repeat(self) -> bool {
        self == Self::PAGE || self == Self::SLAB || self == Self::FILE
    }
}

/// A frame with a wrong use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misuse {
    /// The rule that is violated.
    pub rule: &'static str,
    /// The frame.
    pub frame: Frame,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (frame {:#x})", self.rule, self.frame.0)
    }
}

impl core::error::Error for Misuse {}

/// The number of frames for each use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    found: [u64; USES],
    lost: [u64; USES],
    first_lost: Option<Frame>,
}

impl Accounts {
    /// Returns the number of frames with this use.
    pub fn of(&self, what: Use) -> u64 {
        self.found[what.0 as usize]
    }

    /// Returns the number of lost frames that last had this use.
    pub fn lost_of(&self, what: Use) -> u64 {
        self.lost[what.0 as usize]
    }

    /// Returns the number of lost frames.
    pub fn lost(&self) -> u64 {
        self.lost.iter().sum()
    }

    /// Returns the first lost frame.
    pub fn first_lost(&self) -> Option<Frame> {
        self.first_lost
    }

    /// Returns the number of all frames.
    pub fn all(&self) -> u64 {
        self.found.iter().sum::<u64>() + self.lost()
    }
}

/// A frame audit in progress.
pub struct FrameAudit {
    range: Range<'static>,
}

impl FrameAudit {
    pub(crate) fn new(range: Range<'static>) -> Self {
        range.descriptors.iter().for_each(|d| d.enter(0, 0));
        Self { range }
    }

    fn descriptor(&self, frame: Frame) -> Option<&Descriptor> {
        let at = frame.0.checked_sub(self.range.base)?;
        let descriptor = self.range.descriptors.get(usize::try_from(at).ok()?)?;
        (!descriptor.flags().has(Flags::ABSENT)).then_some(descriptor)
    }

    /// Enters a frame.
    ///
    /// # Errors
    /// If the frame is not the allocator's, or is entered already. A page of memory and a frame of small
    /// objects may be entered again for the same use.
    pub fn enter(&self, frame: Frame, what: Use) -> Result<(), Misuse> {
        let wrong = |rule| Misuse { rule, frame };
        let descriptor = self
            .descriptor(frame)
            .ok_or(wrong("what is used as a frame is none"))?;
        let (entered, times) = descriptor.entry();
        if entered != 0 && !(entered == what.0 && what.may_repeat()) {
            return Err(wrong(match Use(entered) {
                Use::FREE | Use::CACHED | Use::ZEROED => "a free frame is used, or free twice",
                Use::ZERO_PAGE => "the shared zero page is used as something else",
                _ => "a frame is used twice",
            }));
        }
        descriptor.enter(what.0, times + 1);
        Ok(())
    }

    /// Whether a frame is already entered for this use.
    pub fn has(&self, frame: Frame, what: Use) -> bool {
        self.descriptor(frame)
            .is_some_and(|descriptor| descriptor.entry().0 == what.0)
    }

    /// Whether a frame is already entered for any use.
    pub fn is_entered(&self, frame: Frame) -> bool {
        self.descriptor(frame)
            .is_some_and(|descriptor| descriptor.entry().0 != 0)
    }

    /// Enters all frames that the port uses for this purpose and that are not entered yet.
    pub fn enter_all_of_port(&self, purpose: u32) {
        for descriptor in self.range.descriptors {
            if descriptor.flags() == Flags::of_port(purpose) && descriptor.entry().0 == 0 {
                descriptor.enter(Use::of_port(purpose).0, 1);
            }
        }
    }

    /// Calls `visit` with every frame that is entered for this use and its number of entries, until `visit`
    /// fails.
    ///
    /// # Errors
    /// Those of `visit`.
    pub fn for_each<E>(
        &self,
        what: Use,
        visit: &mut dyn FnMut(Frame, &Descriptor, u32) -> Result<(), E>,
    ) -> Result<(), E> {
        for (frame, descriptor) in (self.range.base..).zip(self.range.descriptors) {
            let (entered, times) = descriptor.entry();
            if entered == what.0 {
                visit(Frame(frame), descriptor, times)?;
            }
        }
        Ok(())
    }

    /// Whether a frame is unused, in a block of the pool.
    fn is_kept(&self, frame: Frame, descriptor: &Descriptor) -> bool {
        let first = Frame(frame.0 & !(ENTRIES as u64 - 1));
        let head = self.descriptor(first);
        let is_pooled = |head: &Descriptor| head.pooled().load(Ordering::Relaxed) != 0;
        !descriptor.is_used() && head.is_some_and(is_pooled)
    }

    /// Ends the audit and returns the totals.
    pub fn close(self) -> Accounts {
        let mut accounts = Accounts::default();
        for (frame, descriptor) in (self.range.base..).zip(self.range.descriptors) {
            if descriptor.flags().has(Flags::ABSENT) {
                continue;
            }
            match descriptor.entry().0 {
                0 if descriptor.pins() != 0 => {
                    accounts.found[Use::PINNED.0 as usize] += 1;
                }
                // A block of the pool is kept, of which another frame is used.
                0 if self.is_kept(Frame(frame), descriptor) => {
                    accounts.found[Use::FREE.0 as usize] += 1;
                }
                0 => {
                    let last = Use::last(descriptor.flags());
                    accounts.lost[last.0 as usize % USES] += 1;
                    accounts.first_lost.get_or_insert(Frame(frame));
                }
                entered => accounts.found[entered as usize % USES] += 1,
            }
        }
        accounts
    }
}
