//! What operations are done on: a process of a kernel, or an address space of the soft machine.

use crate::address::Scene;
use crate::kind::{Act, Arguments};

/// How an access ended that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// The signal.
    pub number: i32,
    /// `si_code`.
    pub code: i32,
    /// `si_addr`.
    pub address: u64,
}

/// A line of `/proc/self/maps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// Bits of `PROT_*`.
    pub prot: u8,
    /// It is shared.
    pub shared: bool,
    /// The program's file that is mapped.
    pub file: Option<u8>,
    /// The place in the file, or in what it shares, if it has one.
    pub offset: u64,
}

/// What can be limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// Everything that is mapped (`RLIMIT_AS`).
    Mapped,
    /// Private memory that can be written (`RLIMIT_DATA`).
    Data,
    /// What grows down (`RLIMIT_STACK`): in all, not beside what there is.
    Stack,
    /// What is locked (`RLIMIT_MEMLOCK`), never more than [`MOST_LOCKED`].
    Locked,
}

/// Bytes that may be locked in a program that limits them, until it does, and at most: Linux's
/// default, and as much as a process without privileges may raise its limit to.
pub const MOST_LOCKED: u64 = 8 << 20;

/// Faults that a thread was charged with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Those that waited for nothing.
    pub minor: u64,
    /// Those that waited for I/O.
    pub major: u64,
}

/// Memory. Addresses are real ones. Errors are Linux's error numbers.
#[allow(clippy::missing_errors_doc)]
pub trait Memory {
    /// Where the heap begins.
    fn heap(&self) -> u64;
    /// What the program is about.
    fn scene(&self) -> Scene;
    /// Whether the process was made by a fork.
    fn is_forked(&self) -> bool;
    /// A system call; `act` is an [`Act::Call`].
    fn call(&mut self, act: &Act, arguments: &Arguments) -> Result<u64, i32>;
    /// Loads a word.
    fn load(&mut self, address: u64) -> Result<u64, Signal>;
    /// Stores a word.
    fn store(&mut self, address: u64, value: u64) -> Result<(), Signal>;
    /// Stores a word, or loads it, and says how many faults that took.
    fn counted(
        &mut self,
        address: u64,
        value: Option<u64>,
        faults: &mut Faults,
    ) -> Result<u64, Signal>;
    /// `process_vm_readv` or `process_vm_writev` of words; how many bytes were copied.
    fn process_vm(&mut self, address: u64, words: &mut [u64], writes: bool) -> Result<u64, i32>;
    /// Lets every page count as not written.
    fn clear_soft_dirty(&mut self) -> Result<(), i32>;
    /// Which pages from an address on were written since; 64 at most.
    fn soft_dirty(&mut self, address: u64, to: &mut [u8]) -> Result<(), i32>;
    /// A page's words, read one by one into memory that is valid until the next one.
    fn page(&mut self, address: u64) -> Result<&[u64; 512], Signal>;
    /// `mincore`: a byte for each page, valid until the next call.
    fn mincore(&mut self, address: u64, length: u64) -> Result<&[u8], i32>;
    /// What a file of the program is called in calls.
    fn file(&self, number: u64) -> u64;
    /// `pread` of words; how many bytes came.
    fn read(&mut self, file: u64, offset: u64, to: &mut [u64]) -> Result<u64, i32>;
    /// `pwrite` of a word.
    fn write(&mut self, file: u64, offset: u64, value: u64) -> Result<u64, i32>;
    /// The size of a file.
    fn size(&mut self, file: u64) -> Result<u64, i32>;
    /// `process_madvise` about the process itself.
    fn process_madvise(&mut self, address: u64, length: u64, advice: u64) -> Result<u64, i32>;
    /// Lets the process map so many pages more than it has now; `u64::MAX`: without end.
    fn limit(&mut self, what: Limited, more: u64) -> Result<(), i32>;
    /// `brk`: where the heap ends now.
    fn brk(&mut self, address: u64) -> u64;
    /// Takes a mapping away.
    fn unmap(&mut self, address: u64, length: u64) -> Result<(), i32>;
    /// Makes a mapping readable, so that what is in it can be compared.
    fn make_readable(&mut self, address: u64, length: u64) -> Result<(), i32>;
    /// Every mapping that begins below `end`, in order.
    fn maps(&mut self, end: u64, show: &mut dyn FnMut(Mapping));
}
