//! What operations run on: a process of a kernel, or an address space of the soft machine.

use crate::address::Scene;
use crate::kind::{Act, Arguments};

/// The signal of a failed access.
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
    /// Whether it is shared.
    pub shared: bool,
    /// The program's file that is mapped.
    pub file: Option<u8>,
    /// The offset in the file, or in the shared memory, if there is one.
    pub offset: u64,
}

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// All mapped memory (`RLIMIT_AS`).
    Mapped,
    /// Private writable memory (`RLIMIT_DATA`).
    Data,
    /// Mappings that grow down (`RLIMIT_STACK`): the total, not relative to the present amount.
    Stack,
    /// Locked memory (`RLIMIT_MEMLOCK`), at most [`MOST_LOCKED`].
    Locked,
}

/// Bytes of the limit of locked memory in a program that sets it: the initial and the highest value. It is Linux's
/// default, up to which a process without privileges may raise its limit.
pub const MOST_LOCKED: u64 = 8 << 20;
/// Faults that were charged to a thread.
/// Faults that a thread was charged with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Faults without I/O.
    pub minor: u64,
    /// Faults that waited for I/O.
    pub major: u64,
}

/// Memory. Addresses are real ones. Errors are Linux's error numbers.
#[allow(clippy::missing_errors_doc)]
pub trait Memory {
    /// The start of the heap.
    fn heap(&self) -> u64;
    /// The program's scene.
    fn scene(&self) -> Scene;
    /// Whether the process was made by a fork.
    fn is_forked(&self) -> bool;
    /// A system call; `act` is an [`Act::Call`].
    fn call(&mut self, act: &Act, arguments: &Arguments) -> Result<u64, i32>;
    /// Loads a word.
    fn load(&mut self, address: u64) -> Result<u64, Signal>;
    /// Stores a word.
    fn store(&mut self, address: u64, value: u64) -> Result<(), Signal>;
    /// Stores a word, or loads it, and sets the number of faults.
    fn counted(
        &mut self,
        address: u64,
        value: Option<u64>,
        faults: &mut Faults,
    ) -> Result<u64, Signal>;
    /// `process_vm_readv` or `process_vm_writev` of words; returns the number of bytes copied.
    fn process_vm(&mut self, address: u64, words: &mut [u64], writes: bool) -> Result<u64, i32>;
    /// Clears all soft-dirty bits.
    fn clear_soft_dirty(&mut self) -> Result<(), i32>;
    /// Reads which of at most 64 pages from an address on were written since.
    fn soft_dirty(&mut self, address: u64, to: &mut [u8]) -> Result<(), i32>;
    /// A page's words, read one by one into memory that is valid until the next call.
    fn page(&mut self, address: u64) -> Result<&[u64; 512], Signal>;
    /// `mincore`: a byte for each page, valid until the next call.
    fn mincore(&mut self, address: u64, length: u64) -> Result<&[u8], i32>;
    /// The number of a file in calls.
    fn file(&self, number: u64) -> u64;
    /// `pread` of words; returns the number of bytes read.
    fn read(&mut self, file: u64, offset: u64, to: &mut [u64]) -> Result<u64, i32>;
    /// `pwrite` of a word.
    fn write(&mut self, file: u64, offset: u64, value: u64) -> Result<u64, i32>;
    /// The size of a file.
    fn size(&mut self, file: u64) -> Result<u64, i32>;
    /// `process_madvise` on the process itself.
    fn process_madvise(&mut self, address: u64, length: u64, advice: u64) -> Result<u64, i32>;
    /// Lets the process map `more` pages above the present number; `u64::MAX`: without limit.
    fn limit(&mut self, what: Limited, more: u64) -> Result<(), i32>;
    /// Ends or begins the use of the system's swap device, if there is one that programs may change.
    fn swap(&mut self, on: bool) -> Result<(), i32>;
    /// `brk`: returns the end of the heap.
    fn brk(&mut self, address: u64) -> u64;
    /// Unmaps a mapping.
    fn unmap(&mut self, address: u64, length: u64) -> Result<(), i32>;
    /// Makes a mapping readable, so that its content can be compared.
    fn make_readable(&mut self, address: u64, length: u64) -> Result<(), i32>;
    /// Every mapping that begins below `end`, in order.
    fn maps(&mut self, end: u64, show: &mut dyn FnMut(Mapping));
}
