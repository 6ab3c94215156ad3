//! What the bits of a page-table entry mean, as data.
//!
//! A format is a constant of type [`Format`]; the code that uses it is written
//! once and folds to the same instructions as if it had been written for one
//! machine. A new architecture adds a constant, no code.
//!
//! Software's share of an entry:
//!
//! | present | `claim` | `hidden` | `guard` | meaning |
//! | --- | --- | --- | --- | --- |
//! | 0 | 0 | 0 | 0 | empty; the whole word is 0 |
//! | 1 | 0 | 0 | 0 | a page or a table |
//! | 1 | 1 | 0 | 0 | claimed, still readable by hardware |
//! | 0 | 1 | 0 | 0 | claimed by the CPU named in it; may remember the frame it replaced |
//! | 0 | 0 | 1 | 0 | a page that no access may reach (`PROT_NONE`), with its frame |
//! | 0 | 0 | 0 | 1 | a guard: no page, and no access may bring one; nothing else is set |
//!
//! An entry that is not present, has `moving`, and is not claimed, is a *swap entry* or a *marker*
//! ([`crate::pte`]). A present entry above the lowest level that has `huge` maps a huge page and leads to no
//! table. Whichever it is, [`Format::decode`] says.
//!
//! An entry that is claimed while its page is moved is not present, has `claim` and `moving`,
//! and keeps everything else that it was.
//!
//! An entry whose page is a device's, and not memory that anybody counts, has `device` as long as
//! it is anything but empty, a claim that remembers it included: its frame has no descriptor.
//!
//! An entry that has a page, present or hidden, also says whether the page was written since
//! somebody began to watch for that: `soft_dirty`. **What lets stores through has it**, so
//! that a store that would have to set it faults first; whoever takes it away takes the
//! right to store away with it. It may be the bit of `guard`, which has no page.
//!
//! `owner` is explained in [`crate::holders`].

use crate::address::{Frame, PAGE_SIZE};
use crate::protection::Access;
use crate::protection::Protection;
use faultless_sync::Cpu;

/// A property that some machines express by a set bit and some by a clear one.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Bits that are set when the property holds.
    pub yes: u64,
    /// Bits that are set when it does not.
    pub no: u64,
}

impl Flag {
    pub(crate) const fn bits(self, holds: bool) -> u64 {
        if holds { self.yes } else { self.no }
    }

    pub(crate) const fn mask(self) -> u64 {
        self.yes | self.no
    }

    pub(crate) const fn holds(self, value: u64) -> bool {
        value & self.mask() == self.yes
    }
}

/// The bits of one machine's entries.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The hardware uses the entry.
    pub present: u64,
    /// Bits of every present leaf (user page, memory type, …).
    pub leaf: u64,
    /// Bits of every table entry; accessed is preset, so that hardware never writes it.
    pub table: u64,
    /// Stores are allowed.
    pub write: Flag,
    /// The same in a table entry: to whatever is below it, as far as that allows them.
    pub table_write: Flag,
    /// Instruction fetches are allowed.
    pub execute: Flag,
    /// Bits of a leaf that may only be executed, on a machine that can express that; another
    /// one ignores them.
    pub execute_only: u64,
    /// Set by hardware when the entry is used.
    pub accessed: u64,
    /// Set by hardware when the page is written.
    pub dirty: u64,
    /// The frame's physical address.
    pub address: u64,
    /// Software: claimed.
    pub claim: u64,
    /// Software, not present: a page without any access.
    pub hidden: u64,
    /// Software, not present: no page, and none may come ([`Format::is_guard`]).
    pub guard: u64,
    /// Software: the page was written since its soft-dirty bit was cleared.
    pub soft_dirty: u64,
    /// Software, not present: claimed by whoever moves its page ([`Format::is_moving`]).
    pub moving: u64,
    /// Software: the frame is a device's ([`Format::is_device`]).
    pub device: u64,
    /// How a device's page is cached, but for [`Caching::Cached`]: bits of a leaf, none of which
    /// any other leaf has.
    pub uncached: u64,
    /// Of a present entry above the lowest level: it maps a huge page, and leads to no table.
    pub huge: Flag,
    /// Software: stores to the page are reported to a handler (userfaultfd's write protection). In
    /// entries with a page, in swap entries, and in markers.
    pub reports_writes: u64,
    /// What a swap entry holds where.
    pub swap: SwapBits,
    /// Where a claim that is not present keeps the claimer's CPU number (8 bits).
    pub claimer_shift: u32,
    /// Software, where loads are marked: the CPU that alone may hold the entry while `accessed`
    /// is clear, plus 1; 0 for none, all ones for nobody ([`crate::holders`]). May be empty.
    pub owner: u64,
}

/// Where a swap entry, which has [`Format::moving`] and is neither present nor claimed, keeps what it says.
#[derive(Clone, Copy, Debug)]
pub struct SwapBits {
    /// The lowest bit of the device's number, which has [`SwapBits::DEVICE_BITS`].
    pub device_shift: u32,
    /// The page belongs to one space alone (see the mark of its frame's descriptor).
    pub exclusive: u64,
    /// Whether the slot's bits are inverted: on CPUs that can speculatively load through an entry that is not
    /// present (L1TF), the address must not be that of memory.
    pub is_inverted: bool,
}

impl SwapBits {
    /// Bits of a device's number.
    pub const DEVICE_BITS: u32 = 5;
}

/// How CPUs cache the pages of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caching {
    /// Like memory: for what is memory.
    Cached,
    /// Not at all: every access reaches the device, in order.
    Uncached,
}

/// Chooses a [`Format`] at compile time.
pub trait EntryFormat: Send + Sync + 'static {
    /// The bits.
    const FORMAT: Format;
}

impl Format {
    /// That what stands beside each other in one entry, or in a claim that remembers one, has bits of its own.
    pub(crate) const fn check(&self) {
        let together = [
            self.address,
            self.device,
            self.owner,
            self.execute_only,
            self.execute.no,
            self.reports_writes,
        ];
        let (mut all, mut at) = (self.claim | self.hidden | self.guard | self.moving, 0);
        while at < together.len() {
            assert!(all & together[at] == 0);
            all |= together[at];
            at += 1;
        }
        // A claim's CPU number stands beside a frame; a swap entry's parts beside each other, and none is
        // taken for another kind of entry.
        let claimer = 0xff << self.claimer_shift;
        assert!(claimer & (self.present | self.claim | self.address | self.device) == 0);
        let device = ((1 << SwapBits::DEVICE_BITS) - 1) << self.swap.device_shift;
        let swap = [
            self.address,
            self.moving,
            self.soft_dirty,
            self.reports_writes,
        ];
        let (mut all, mut at) = (self.present | self.claim | self.hidden | device, 0);
        assert!(device & (self.present | self.claim | self.hidden) == 0);
        while at < swap.len() {
            assert!(all & swap[at] == 0);
            all |= swap[at];
            at += 1;
        }
        assert!(all & self.swap.exclusive == 0);
        // A present page never has what says that a claimed one was hidden.
        assert!(self.leaf & (self.hidden | self.moving | self.claim) == 0);
        // One run of bits.
        let owner = self.owner >> (self.owner.trailing_zeros() % u64::BITS);
        assert!(owner & (owner + 1) == 0);
    }

    /// An entry that maps `frame`, accessed preset, dirty if `dirty`, soft-dirty if `write`.
    #[inline]
    pub const fn leaf(&self, frame: Frame, write: bool, execute: bool, dirty: bool) -> u64 {
        (frame.0 * PAGE_SIZE)
            | self.leaf
            | self.accessed
            | self.write.bits(write)
            | self.execute.bits(execute)
            | if dirty { self.dirty } else { 0 }
            | if write { self.soft_dirty } else { 0 }
    }

    /// The same for a page of a mapping that allows this; `write` says whether stores are let
    /// through at once.
    #[inline]
    pub fn leaf_of(&self, frame: Frame, write: bool, protection: Protection, dirty: bool) -> u64 {
        self.leaf(frame, write, protection.execute, dirty) | self.key(protection)
    }

    /// The same for a page of a device.
    #[inline]
    pub fn device_leaf(
        &self,
        frame: Frame,
        write: bool,
        protection: Protection,
        caching: Caching,
    ) -> u64 {
        let cached = match caching {
            Caching::Cached => 0,
            Caching::Uncached => self.uncached,
        };
        self.leaf_of(frame, write, protection, write) | self.device | cached
    }

    /// Whether an entry that is not empty, or a claim, is of a device's page: nobody counts its
    /// frame, which has no descriptor.
    #[inline]
    pub const fn is_device(&self, value: u64) -> bool {
        value & self.device != 0
    }

    #[inline]
    fn key(&self, protection: Protection) -> u64 {
        if protection.is_execute_only() {
            self.execute_only
        } else {
            0
        }
    }

    /// Whether a present entry says that its page may only be executed.
    #[inline]
    pub const fn is_execute_only(&self, value: u64) -> bool {
        value & self.execute_only != 0
    }

    /// An entry that leads to the table in `frame`.
    #[inline]
    pub const fn table(&self, frame: Frame) -> u64 {
        (frame.0 * PAGE_SIZE) | self.table
    }

    /// A table's entry, but that no store is let through to what is below it.
    #[inline]
    pub const fn frozen(&self, value: u64) -> u64 {
        (value & !self.table_write.mask()) | self.table_write.bits(false)
    }

    /// A table's entry that leaves it to what is below it which stores are let through.
    #[inline]
    pub const fn thawed(&self, value: u64) -> u64 {
        (value & !self.table_write.mask()) | self.table_write.bits(true)
    }

    /// Whether a table's entry lets no store through to what is below it.
    #[inline]
    pub const fn is_frozen(&self, value: u64) -> bool {
        self.is_present(value) && !self.table_write.holds(value)
    }

    /// Whether a present entry above the lowest level maps a huge page.
    #[inline]
    pub const fn is_huge(&self, value: u64) -> bool {
        self.is_present(value) && self.huge.holds(value)
    }

    /// Whether an entry above the lowest level leads to a table and is not claimed: the one test that every step
    /// of a walk makes.
    #[inline]
    pub const fn is_table(&self, value: u64) -> bool {
        let tested = self.present | self.claim | self.huge.mask();
        value & tested == self.present | self.huge.no
    }

    /// The frame of an entry that has one.
    #[inline]
    pub const fn frame(&self, value: u64) -> Frame {
        Frame((value & self.address) / PAGE_SIZE)
    }

    /// Whether hardware uses the entry.
    #[inline]
    pub const fn is_present(&self, value: u64) -> bool {
        value & self.present != 0
    }

    /// Whether the entry is claimed.
    #[inline]
    pub const fn is_claimed(&self, value: u64) -> bool {
        value & self.claim != 0
    }

    /// Whether the entry holds a page that no access may reach.
    #[inline]
    pub const fn is_hidden(&self, value: u64) -> bool {
        value & (self.present | self.claim | self.hidden) == self.hidden
    }

    /// Whether the entry is a guard: of all entries that are not empty and not claimed the
    /// only one that has no frame.
    #[inline]
    pub const fn is_guard(&self, value: u64) -> bool {
        value == self.guard
    }

    /// Whether the page behind an entry that has one was written since it was said to be clean.
    #[inline]
    pub const fn is_dirty(&self, value: u64) -> bool {
        value & self.dirty != 0
    }

    /// Whether the page behind a present entry was used since it was mapped, as far as the entry
    /// says: by whom it is owned it was used.
    #[inline]
    pub const fn is_used(&self, value: u64) -> bool {
        let owner = value & self.owner;
        value & self.accessed != 0 || (owner != 0 && owner != self.owner)
    }

    /// The same entry, its page not having been used: hardware says so when somebody does. Who may
    /// hold it is not known any more.
    #[inline]
    pub const fn unused(&self, value: u64) -> u64 {
        value & !(self.accessed | self.owner)
    }

    /// The same entry, its page being clean.
    #[inline]
    pub const fn cleaned(&self, value: u64) -> u64 {
        value & !self.dirty
    }

    /// Whether a present entry lets stores through.
    #[inline]
    pub const fn is_writable(&self, value: u64) -> bool {
        self.write.holds(value)
    }

    /// Whether a present entry lets instruction fetches through.
    #[inline]
    pub const fn is_executable(&self, value: u64) -> bool {
        self.execute.holds(value)
    }

    /// Whether hardware lets an access through this entry.
    #[inline]
    pub const fn permits(&self, value: u64, access: Access) -> bool {
        self.is_present(value)
            && match access {
                Access::Read => true,
                Access::Write => self.is_writable(value),
                Access::Execute => self.is_executable(value),
            }
    }

    /// The claim of `cpu` that replaces `old`, remembering its frame and whose that is.
    #[inline]
    pub const fn claim_of(&self, old: u64, cpu: Cpu) -> u64 {
        // A swap entry's slot is no frame.
        let has_frame = old & (self.present | self.hidden | self.claim) != 0;
        let kept = if has_frame {
            self.address | self.device
        } else {
            0
        };
        (old & kept) | self.claim | ((cpu.0 as u64) << self.claimer_shift)
    }

    /// The claim of whoever moves the page of an entry that has one: all else is kept in it.
    #[inline]
    pub const fn moving(&self, value: u64) -> u64 {
        (value & !self.present) | self.claim | self.moving
    }

    /// Whether an entry is claimed so.
    #[inline]
    pub const fn is_moving(&self, value: u64) -> bool {
        value & (self.present | self.claim | self.moving) == self.claim | self.moving
    }

    /// What an entry was before it was claimed so.
    #[inline]
    pub const fn settled(&self, moving: u64) -> u64 {
        let value = moving & !(self.claim | self.moving);
        if value & self.hidden == 0 {
            value | self.present
        } else {
            value
        }
    }

    /// A page's entry under another protection: hidden if nothing is allowed,
    /// else present. `write` says whether stores are let through at once; they are not
    /// unless the page is soft-dirty.
    #[inline]
    pub fn with_protection(&self, value: u64, protection: Protection, write: bool) -> u64 {
        let kept = self.address | self.marks() | self.soft_dirty | self.device | self.uncached;
        let kept = kept | self.reports_writes;
        let kept = value & kept;
        if protection.is_none() {
            kept | self.hidden
        } else {
            let write = write && protection.write && self.is_soft_dirty(value);
            let execute = self.execute.bits(protection.execute) | self.key(protection);
            kept | self.leaf | self.write.bits(write) | execute
        }
    }

    /// The same entry, but that no store is let through.
    #[inline]
    pub const fn without_write(&self, value: u64) -> u64 {
        if self.is_present(value) {
            (value & !self.write.mask()) | self.write.bits(false)
        } else {
            value
        }
    }

    /// Whether the page behind an entry that has one was written since that was watched for.
    #[inline]
    pub const fn is_soft_dirty(&self, value: u64) -> bool {
        value & self.soft_dirty != 0 && value != self.guard
    }

    /// The same entry, its page not having been written since; a store faults.
    #[inline]
    pub const fn watched(&self, value: u64) -> u64 {
        self.without_write(value) & !self.soft_dirty
    }

    /// The same entry, its page having been written, or being about to be.
    #[inline]
    pub const fn written(&self, value: u64) -> u64 {
        value | self.dirty | self.soft_dirty
    }

    /// The same entry of another frame.
    #[inline]
    pub const fn with_frame(&self, value: u64, frame: Frame) -> u64 {
        (value & !self.address) | (frame.0 * PAGE_SIZE)
    }

    /// Bits that hardware may set in a present entry at any moment.
    #[inline]
    pub const fn hardware(&self) -> u64 {
        self.accessed | self.dirty
    }
}
