//! A guest's memory as rust-vmm's devices and loaders see it: the traits of `vm-memory`.
//!
//! The guest's pages are the host's: a device model uses them by the host's own accesses, with the host's faults. No pointer
//! into guest memory is given out, because the host may page out, copy or move a page at any time.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use faultless_mm::{PROT_READ, PROT_WRITE, flags};
use faultless_soft::{Soft, SoftCpu, SoftSpace, Trap};
use faultless_tdp::{Options, OwnedGuest, Slot, SlotFlags};
use vm_memory::bitmap::{BS, Bitmap, BitmapSlice, WithBitmapSlice};
use vm_memory::{AtomicAccess, Bytes, GuestAddress, GuestMemoryError as Error, GuestMemoryRegion};
use vm_memory::{MemoryRegionAddress as At, ReadVolatile, VolatileSlice, WriteVolatile};

type Result<T> = std::result::Result<T, Error>;
pub type Done<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const WRONG: Error = Error::InvalidBackendAddress;
pub const PAGE: u64 = faultless_mm::PAGE_SIZE;

/// A virtual machine with one slot of memory, number 0.
pub struct Vm {
    pub guest: OwnedGuest<Soft, Arc<SoftSpace>>,
    pub slot: Slot,
}

impl Vm {
    /// Makes one with memory at a guest-physical address. The calling thread runs a CPU of the host.
    pub fn new(host: &Arc<SoftSpace>, guest_address: u64, size: u64) -> Done<Self> {
        let how = flags::PRIVATE | flags::ANONYMOUS;
        let slot = Slot {
            guest_address,
            size,
            host_address: host.mmap(0, size, PROT_READ | PROT_WRITE, how)?,
            flags: SlotFlags::empty(),
        };
        let guest = OwnedGuest::new(host.clone(), 0, Options::default())?;
        guest.set_slot(0, &slot)?;
        Ok(Self { guest, slot })
    }

    /// Returns which pages are dirty. They are clean from then on.
    pub fn take_dirty(&self) -> Done<Vec<At>> {
        let (mut pages, mut first) = (Vec::new(), 0);
        self.guest.get_dirty_log(0, true, &mut |word| {
            let dirty = (0..64).filter(|bit| word >> bit & 1 != 0);
            pages.extend(dirty.map(|bit| At((first + bit) * PAGE)));
            first += 64;
            Ok(())
        })?;
        Ok(pages)
    }
}

/// The memory of a virtual machine, as seen by a CPU of the host.
pub struct Region<'a> {
    pub vm: &'a Vm,
    pub cpu: &'a SoftCpu<'a>,
}

impl Region<'_> {
    /// Returns the host's address, and how many of `n` bytes lie in the region.
    fn place(&self, at: At, n: usize) -> Result<(u64, usize)> {
        let rest = self.len().checked_sub(at.0).ok_or(WRONG)?;
        Ok((self.vm.slot.host_address + at.0, n.min(rest as usize)))
    }
}

fn failed(trap: Trap) -> Error {
    Error::IOError(std::io::Error::other(format!("{trap:?}")))
}

/// Repeats `step` until `expected` bytes are done.
fn all(at: At, expected: usize, mut step: impl FnMut(At, usize) -> Result<usize>) -> Result<()> {
    let mut completed = 0;
    while completed < expected {
        match step(At(at.0 + completed as u64), expected - completed) {
            Ok(bytes) if bytes > 0 => completed += bytes,
            other => return other.and(Err(WRONG)),
        }
    }
    Ok(())
}

impl<'a> GuestMemoryRegion for Region<'a> {
    type B = Log<'a>;

    fn len(&self) -> u64 {
        self.vm.slot.size
    }

    fn start_addr(&self) -> GuestAddress {
        GuestAddress(self.vm.slot.guest_address)
    }

    fn bitmap(&self) -> BS<'_, Log<'a>> {
        Log(self.vm, self.vm.slot.guest_address)
    }
}

impl Bytes<At> for Region<'_> {
    type E = Error;

    fn write(&self, buf: &[u8], at: At) -> Result<usize> {
        let (host, count) = self.place(at, buf.len())?;
        self.cpu.store_bytes(host, &buf[..count]).map_err(failed)?;
        self.bitmap().mark_dirty(at.0 as usize, count);
        Ok(count)
    }

    fn read(&self, buf: &mut [u8], at: At) -> Result<usize> {
        let (host, count) = self.place(at, buf.len())?;
        let loaded = self.cpu.load_bytes(host, &mut buf[..count]);
        loaded.map(|()| count).map_err(failed)
    }

    fn write_slice(&self, buf: &[u8], at: At) -> Result<()> {
        let n = buf.len();
        all(at, n, |at, rest| self.write(&buf[n - rest..], at))
    }

    fn read_slice(&self, buf: &mut [u8], at: At) -> Result<()> {
        let n = buf.len();
        all(at, n, |at, rest| self.read(&mut buf[n - rest..], at))
    }

    fn read_volatile_from<F: ReadVolatile>(&self, at: At, from: &mut F, n: usize) -> Result<usize> {
        let mut buf = vec![0; self.place(at, n)?.1];
        let got = from.read_volatile(&mut VolatileSlice::from(&mut buf[..]))?;
        self.write(&buf[..got], at)
    }

    fn write_volatile_to<F: WriteVolatile>(&self, at: At, to: &mut F, n: usize) -> Result<usize> {
        let mut buf = vec![0; self.place(at, n)?.1];
        self.read(&mut buf, at)?;
        Ok(to.write_volatile(&VolatileSlice::from(&mut buf[..]))?)
    }

    fn read_exact_volatile_from<F: ReadVolatile>(&self, at: At, f: &mut F, n: usize) -> Result<()> {
        all(at, n, |at, rest| self.read_volatile_from(at, f, rest))
    }

    fn write_all_volatile_to<F: WriteVolatile>(&self, at: At, f: &mut F, n: usize) -> Result<()> {
        all(at, n, |at, rest| self.write_volatile_to(at, f, rest))
    }

    /// Only for what the soft machine stores at once: words of 8 bytes.
    fn store<T: AtomicAccess>(&self, value: T, at: At, _: Ordering) -> Result<()> {
        let word = value.as_slice().try_into().map_err(|_| WRONG)?;
        // The machine's accesses are relaxed: this is what any order asks for, or more.
        fence(Ordering::SeqCst);
        let (host, word) = (self.place(at, 8)?.0, u64::from_ne_bytes(word));
        self.cpu.store(host, word).map_err(failed)?;
        fence(Ordering::SeqCst);
        self.bitmap().mark_dirty(at.0 as usize, 8);
        Ok(())
    }

    fn load<T: AtomicAccess>(&self, at: At, _: Ordering) -> Result<T> {
        fence(Ordering::SeqCst);
        let word = self.cpu.load(self.place(at, 8)?.0).map_err(failed)?;
        fence(Ordering::SeqCst);
        T::from_slice(&word.to_ne_bytes()).copied().ok_or(WRONG)
    }
}

/// The guest's dirty log, from a guest-physical address on.
#[derive(Clone, Copy)]
pub struct Log<'a>(&'a Vm, u64);

impl std::fmt::Debug for Log<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log({:#x})", self.1)
    }
}

impl<'a> WithBitmapSlice<'_> for Log<'a> {
    type S = Log<'a>;
}

impl BitmapSlice for Log<'_> {}

impl Bitmap for Log<'_> {
    fn mark_dirty(&self, offset: usize, len: usize) {
        self.0.guest.mark_dirty(self.1 + offset as u64, len as u64);
    }

    fn dirty_at(&self, offset: usize) -> bool {
        self.0.guest.is_dirty(self.1 + offset as u64)
    }

    fn slice_at(&self, offset: usize) -> Self {
        Log(self.0, self.1 + offset as u64)
    }
}
