//! The bits of page-table entries, as data: one constant for each architecture.
//!
//! A format is a constant of type [`Format`]. The code that uses it is written once and compiles to the same
//! instructions as code for a single machine. A new architecture adds a constant, no code.
//!
//! Kinds of entries, by their software bits:
//!
//! | present | `claim` | `hidden` | `guard` | meaning |
//! | --- | --- | --- | --- | --- |
//! | 0 | 0 | 0 | 0 | empty; the whole entry is 0 |
//! | 1 | 0 | 0 | 0 | a page or a table |
//! | 1 | 1 | 0 | 0 | claimed, still readable by hardware |
//! | 0 | 1 | 0 | 0 | claimed by the CPU named in it; may remember the frame it replaced |
//! | 0 | 0 | 1 | 0 | a page that no access may reach (`PROT_NONE`), with its frame |
//! | 0 | 0 | 0 | 1 | a guard: no page, and no access may install one; nothing else is set |
//!
//! A non-present entry with `moving` that is not claimed is a *swap entry* or a *marker* ([`crate::pte`]). A
//! present entry above the lowest level with `huge` maps a huge page and leads to no table.
//! [`Format::decode`] tells the kinds apart.
//!
//! While its page is being moved, an entry is not present, has `claim` and `moving`, and keeps its other
//! bits.
//!
//! `device` marks every non-empty entry of a device's page, including a claim that remembers it. The frame of
//! such a page has no descriptor, so no count covers it.
//!
//! `soft_dirty` says that the page of a present or hidden entry was written since this bit was cleared.
//! **Every entry that allows stores has it**: a store that would have to set it faults first, and clearing it
//! also removes write permission. It may be the bit of `guard`, which has no page.
//!
//! [`crate::holders`] explains `owner`.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::address::{Frame, PAGE_SIZE};
use crate::protection::Access;
use crate::protection::Protection;
use faultless_sync::Cpu;

/// A property that some machines express by a set bit and others by a clear one.
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

/// The entry bits of one machine.
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
    /// Stores are allowed below a table entry, as far as the entries below allow them.
    pub table_write: Flag,
    /// Instruction fetches are allowed.
    pub execute: Flag,
    /// A leaf allows only instruction fetches. On a machine that cannot express it, it has no bits, or they are ignored.
    pub execute_only: Flag,
    /// The port's choice, at boot, whether leaves say so; `None`: they do.
    pub execute_only_chosen: Option<&'static AtomicBool>,
    /// Set by hardware when the entry is used.
    pub accessed: u64,
    /// The page was written. Set by hardware, unless the format has `clean`: then only by software.
    pub dirty: u64,
    /// Cleared by hardware at the first store through a writable entry, on machines that mark stores so; else 0. Clear
    /// also means written. Set in every entry of a page that allows no store, and without meaning in others.
    pub clean: u64,
    /// Hardware may leave it to software to mark an entry as used or written: an access that the entry allows then
    /// faults ([`Format::touched`]).
    pub faults_for_marks: bool,
    /// A huge page may be replaced by a table, or the reverse, only after its entry was not present and was flushed.
    pub breaks_before_make: bool,
    /// The frame's physical address.
    pub address: u64,
    /// Software: claimed.
    pub claim: u64,
    /// Software, not present: a page without any access.
    pub hidden: u64,
    /// Software, not present: no page, and no access may install one ([`Format::is_guard`]).
    pub guard: u64,
    /// Software: the page was written since this bit was cleared.
    pub soft_dirty: u64,
    /// Software, not present: claimed by the operation that moves its page ([`Format::is_moving`]).
    pub moving: u64,
    /// Software: the frame is a device's ([`Format::is_device`]).
    pub device: u64,
    /// Leaf bits of a device's page that is [`Caching::Uncached`]; no other leaf has any of them.
    pub uncached: u64,
    /// In a present entry above the lowest level: it maps a huge page and leads to no table.
    pub huge: Flag,
    /// Software: stores to the page are reported to a handler (userfaultfd's write protection). In
    /// entries with a page, in swap entries, and in markers.
    pub reports_writes: u64,
    /// The layout of a swap entry.
    pub swap: SwapBits,
    /// The shift of the claimer's CPU number (8 bits) in a claim that is not present.
    pub claimer_shift: u32,
    /// Software, where loads are marked: 1 plus the number of the only CPU that may hold the entry while
    /// `accessed` is clear. 0: any CPU may hold it; all ones: none does ([`crate::holders`]). May be empty.
    pub owner: u64,
}

/// The layout of a swap entry, which has [`Format::moving`] and is neither present nor claimed.
#[derive(Clone, Copy, Debug)]
pub struct SwapBits {
    /// The lowest bit of the device number, which has [`SwapBits::DEVICE_BITS`] bits.
    pub device_shift: u32,
    /// The page belongs to a single address space (the *exclusive* mark of a frame's descriptor).
    pub exclusive: u64,
    /// Whether the slot's bits are inverted. On CPUs that can speculatively load through a non-present entry
    /// (L1TF), the address must not be one of memory.
    pub is_inverted: bool,
}

impl SwapBits {
    /// The number of bits of a device number.
    pub const DEVICE_BITS: u32 = 5;
}

/// How CPUs cache the pages of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caching {
    /// Cached like memory, for a device that is memory.
    Cached,
    /// Not cached: every access reaches the device, in order.
    Uncached,
}

/// Chooses a [`Format`] at compile time.
pub trait EntryFormat: Send + Sync + 'static {
    /// The bits.
    const FORMAT: Format;
}

impl Format {
    /// Checks, at compile time, that fields that coexist in an entry, or in a claim that remembers one, do not overlap.
    ///
    /// # Panics
    /// If some do.
    pub const fn check(&self) {
        let together = [
            self.address,
            self.device,
            self.owner,
            self.execute_only.mask(),
            self.execute.no,
            self.reports_writes,
            self.dirty,
            self.clean,
        ];
        let (mut all, mut at) = (self.claim | self.hidden | self.guard | self.moving, 0);
        while at < together.len() {
            assert!(all & together[at] == 0);
            all |= together[at];
            at += 1;
        }
        // A claim's CPU number coexists with a frame. The fields of a swap entry coexist with each other, and
        // no swap entry decodes as another kind.
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
        // A present page has none of these bits: `settled` relies on `hidden`.
        assert!(self.leaf & (self.hidden | self.moving | self.claim) == 0);
        // Table entries have an owner, too.
        assert!(self.owner & (self.table | self.table_write.mask()) == 0);
        // The owner field is contiguous.
        let owner = self.owner >> (self.owner.trailing_zeros() % u64::BITS);
        assert!(owner & (owner + 1) == 0);
    }

    /// Returns an entry that maps `frame`: accessed preset, dirty if `dirty`, soft-dirty if `write`.
    #[inline]
    pub const fn leaf(&self, frame: Frame, write: bool, execute: bool, dirty: bool) -> u64 {
        (frame.0 * PAGE_SIZE)
            | self.leaf
            | self.accessed
            | self.write.bits(write)
            | self.execute.bits(execute)
            | self.execute_only.bits(false)
            | if dirty { self.dirty } else { 0 }
            | if write && dirty { 0 } else { self.clean }
            | if write { self.soft_dirty } else { 0 }
    }

    /// Returns the entry of a page in a mapping with this protection. `write`: the entry allows stores now.
    #[inline]
    pub fn leaf_of(&self, frame: Frame, write: bool, protection: Protection, dirty: bool) -> u64 {
        let leaf = self.leaf(frame, write, protection.execute, dirty);
        leaf & !self.execute_only.mask() | self.data(protection)
    }

    /// Returns the entry of a device's page.
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

    /// Whether a non-empty entry or a claim is of a device's page. Its frame has no descriptor and no count.
    #[inline]
    pub const fn is_device(&self, value: u64) -> bool {
        value & self.device != 0
    }

    /// The bits of a leaf that say whether it allows loads.
    #[inline]
    fn data(&self, protection: Protection) -> u64 {
        let is_refused = protection.is_execute_only() && self.expresses_execute_only();
        self.execute_only.bits(is_refused)
    }

    /// Whether leaves say that only instruction fetches are allowed.
    pub fn expresses_execute_only(&self) -> bool {
        // Relaxed: chosen before there are entries.
        let is_chosen = |chosen: &AtomicBool| chosen.load(Ordering::Relaxed);
        self.execute_only.mask() != 0 && self.execute_only_chosen.is_none_or(is_chosen)
    }

    /// Whether a present entry allows only instruction fetches.
    #[inline]
    pub const fn is_execute_only(&self, value: u64) -> bool {
        self.execute_only.mask() != 0 && self.execute_only.holds(value)
    }

    /// Returns an entry that leads to the table in `frame`.
    #[inline]
    pub const fn table(&self, frame: Frame) -> u64 {
        (frame.0 * PAGE_SIZE) | self.table
    }

    /// Returns a table's entry that forbids stores below it.
    #[inline]
    pub const fn frozen(&self, value: u64) -> u64 {
        (value & !self.table_write.mask()) | self.table_write.bits(false)
    }

    /// Returns a table's entry that leaves write permission to the entries below it.
    #[inline]
    pub const fn thawed(&self, value: u64) -> u64 {
        (value & !self.table_write.mask()) | self.table_write.bits(true)
    }

    /// Whether a table's entry forbids stores below it. An entry above the lowest level that is no table's is not frozen.
    #[inline]
    pub const fn is_frozen(&self, value: u64) -> bool {
        let tested = self.present | self.huge.mask();
        value & tested == self.present | self.huge.no && !self.table_write.holds(value)
    }

    /// Whether a present entry above the lowest level maps a huge page.
    #[inline]
    pub const fn is_huge(&self, value: u64) -> bool {
        self.is_present(value) && self.huge.holds(value)
    }

    /// Whether an entry above the lowest level leads to a table and is not claimed: the only test in each
    /// step of a walk.
    #[inline]
    pub const fn is_table(&self, value: u64) -> bool {
        let tested = self.present | self.claim | self.huge.mask();
        value & tested == self.present | self.huge.no
    }

    /// Returns the entry of a huge page, made from that of its first page.
    #[inline]
    pub const fn huge(&self, first: u64) -> u64 {
        (first & !self.huge.mask()) | self.huge.yes
    }

    /// Returns the entry of the page with this number in a huge page, made from the huge page's entry.
    #[inline]
    pub const fn part(&self, huge: u64, number: u64) -> u64 {
        ((huge & !self.huge.mask()) | self.huge.no) + number * PAGE_SIZE
    }

    /// Returns the frame of an entry that has one.
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

    /// Whether the entry is a guard, which has no other bit set.
    #[inline]
    pub const fn is_guard(&self, value: u64) -> bool {
        value == self.guard
    }

    /// Whether the page of an entry was written since it was last cleaned.
    #[inline]
    pub const fn is_dirty(&self, value: u64) -> bool {
        (value | self.stored(value)) & self.dirty != 0
    }

    /// Returns `dirty` if hardware has marked a store by clearing `clean`.
    #[inline(always)]
    const fn stored(&self, value: u64) -> u64 {
        if self.clean != 0 && value & self.clean == 0 {
            self.dirty
        } else {
            0
        }
    }

    /// Returns the entry of a page that allows stores or not, as it says already, with `clean` as `dirty` says.
    #[inline(always)]
    const fn with_clean(&self, value: u64) -> u64 {
        if self.clean == 0 {
            value
        } else if self.is_writable(value) && value & self.dirty != 0 {
            value & !self.clean
        } else {
            value | self.clean
        }
    }

    /// Whether a present entry says that its page was used since it was mapped. An owner counts as a use.
    #[inline]
    pub const fn is_used(&self, value: u64) -> bool {
        let owner = value & self.owner;
        value & self.accessed != 0 || (owner != 0 && owner != self.owner)
    }

    /// Returns the entry without its accessed bit, which hardware sets on the next access. This also clears
    /// the owner: any CPU may hold the entry.
    #[inline]
    pub const fn unused(&self, value: u64) -> u64 {
        value & !(self.accessed | self.owner)
    }

    /// Returns the entry with its page marked clean.
    #[inline]
    pub const fn cleaned(&self, value: u64) -> u64 {
        (value & !self.dirty) | self.clean
    }

    /// Returns the entry, which allows stores, as hardware marks it at a store.
    #[inline(always)]
    pub const fn stored_to(&self, value: u64) -> u64 {
        if self.clean == 0 {
            value | self.dirty
        } else {
            value & !self.clean
        }
    }

    /// Returns the entry, which permits the access, as software marks it where hardware does not.
    #[inline]
    pub const fn touched(&self, value: u64, access: Access) -> u64 {
        match access {
            Access::Write => self.with_clean(value | self.accessed | self.dirty),
            _ => value | self.accessed,
        }
    }

    /// Whether a present entry allows stores.
    #[inline]
    pub const fn is_writable(&self, value: u64) -> bool {
        self.write.holds(value)
    }

    /// Whether a present entry allows instruction fetches.
    #[inline]
    pub const fn is_executable(&self, value: u64) -> bool {
        self.execute.holds(value)
    }

    /// Whether hardware allows an access through this entry.
    #[inline]
    pub const fn permits(&self, value: u64, access: Access) -> bool {
        self.is_present(value)
            && match access {
                Access::Read => true,
                Access::Write => self.is_writable(value),
                Access::Execute => self.is_executable(value),
            }
    }

    /// Returns the claim of `cpu` that replaces `old`. It remembers the frame, and whether the frame is a
    /// device's.
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

    /// Returns the claim with which an operation moves the page of an entry. It keeps all other bits.
    #[inline]
    pub const fn moving(&self, value: u64) -> u64 {
        (value & !self.present) | self.claim | self.moving
    }

    /// Whether an entry is claimed by a move ([`Format::moving`]).
    #[inline]
    pub const fn is_moving(&self, value: u64) -> bool {
        value & (self.present | self.claim | self.moving) == self.claim | self.moving
    }

    /// Returns the entry from before [`Format::moving`] claimed it.
    #[inline]
    pub const fn settled(&self, moving: u64) -> u64 {
        let value = moving & !(self.claim | self.moving);
        if value & self.hidden == 0 {
            value | self.present
        } else {
            value
        }
    }

    /// Returns a page's entry under another protection: hidden if nothing is allowed, else present. `write`:
    /// the entry allows stores now, but only if the page is soft-dirty and its stores are not reported.
    #[inline(always)]
    pub fn with_protection(&self, value: u64, protection: Protection, write: bool) -> u64 {
        let kept = self.address | self.marks() | self.soft_dirty | self.device | self.uncached;
        let kept = kept | self.reports_writes;
        let kept = value & kept | self.stored(value);
        if protection.is_none() {
            kept | self.hidden | self.clean
        } else {
            let may_write = value & (self.soft_dirty | self.reports_writes) == self.soft_dirty;
            let write = write && protection.write && may_write;
            let execute = self.execute.bits(protection.execute) | self.data(protection);
            self.with_clean(kept | self.leaf | self.write.bits(write) | execute)
        }
    }

    /// Returns the entry without write permission.
    #[inline(always)]
    pub const fn without_write(&self, value: u64) -> u64 {
        if self.is_present(value) {
            let written = value | self.stored(value) | self.clean;
            (written & !self.write.mask()) | self.write.bits(false)
        } else {
            value
        }
    }

    /// Whether the page of an entry was written since its soft-dirty bit was cleared.
    #[inline]
    pub const fn is_soft_dirty(&self, value: u64) -> bool {
        value & self.soft_dirty != 0 && value != self.guard
    }

    /// Returns the entry without its soft-dirty bit and without write permission: the next store faults.
    #[inline]
    pub const fn watched(&self, value: u64) -> u64 {
        self.without_write(value) & !self.soft_dirty
    }

    /// Returns the entry with its page marked dirty and soft-dirty: it was written, or is about to be.
    #[inline(always)]
    pub const fn written(&self, value: u64) -> u64 {
        self.with_clean(value | self.dirty | self.soft_dirty)
    }

    /// Returns the entry with another frame.
    #[inline]
    pub const fn with_frame(&self, value: u64, frame: Frame) -> u64 {
        (value & !self.address) | (frame.0 * PAGE_SIZE)
    }

    /// Returns the bits that hardware may change in a present entry at any moment.
    #[inline]
    pub const fn hardware(&self) -> u64 {
        self.accessed | self.dirty | self.clean
    }
}
