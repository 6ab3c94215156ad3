//! The machine's memory, shared with this command, so that events can be read without work in the guest.
//!
//! It is a memory file (`memfd`) that QEMU inherits and uses as the guest's memory. The kernel says on the control
//! channel where the rings are; until then there are none.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result};
use faultless_trace::{Event, HEADER, Ring, WORDS};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::arch::Arch;
use crate::machine::watch::Rings;
use crate::size::Size;

/// Bytes of a word.
const WORD: u64 = 8;

/// The memory.
pub struct GuestMemory {
    file: File,
    size: Size,
    arch: Arch,
}

/// Where a CPU's ring is: physical address and words of the block that ends with it.
pub type Place = (u64, u64);

/// Where the rings are, once the kernel has said so.
pub type Places = Arc<OnceLock<Vec<Place>>>;

impl GuestMemory {
    /// Memory of that size, not populated yet.
    pub fn new(size: Size, arch: Arch) -> Result<Self> {
        // Not closed in children: QEMU inherits it.
        let file = memfd_create("faultless", MemfdFlags::empty());
        let file = File::from(file.context("cannot share the machine's memory")?);
        file.set_len(size.0)
            .context("cannot share the machine's memory")?;
        Ok(Self { file, size, arch })
    }

    /// The path by which QEMU opens it.
    pub fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }

    fn read(&self, physical: u64, bytes: &mut [u8]) -> Result<()> {
        let at = offset(self.arch, self.size, physical);
        self.file
            .read_exact_at(bytes, at)
            .context("cannot read the machine's memory")
    }

    fn word(&self, physical: u64) -> Result<u64> {
        let mut bytes = [0; WORD as usize];
        self.read(physical, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// The offset of a physical address in the file. QEMU's q35 puts less than 2816 MiB of memory at address 0 as a
/// whole; of more memory, 2 GiB are at 0 and the rest is at 4 GiB. Its virt has all memory from 1 GiB on.
fn offset(arch: Arch, size: Size, physical: u64) -> u64 {
    const SPLIT_FROM: u64 = 0xb000_0000;
    const LOW: u64 = 2 << 30;
    const HIGH: u64 = 4 << 30;
    const START: u64 = 1 << 30;
    match arch {
        Arch::X86_64 if size.0 >= SPLIT_FROM && physical >= HIGH => physical - HIGH + LOW,
        Arch::X86_64 => physical,
        Arch::AArch64 => physical.wrapping_sub(START),
    }
}

/// Parses the kernel's line `trace [[ADDRESS,WORDS],…]`.
pub fn parse_places(line: &[u8]) -> Option<Vec<Place>> {
    serde_json::from_slice(line.strip_prefix(b"trace ")?).ok()
}

/// The rings of a machine.
pub struct GuestRings<'a> {
    memory: &'a GuestMemory,
    places: Places,
    buffer: Vec<u8>,
}

impl<'a> GuestRings<'a> {
    /// The rings in `memory`, at `places` once they are known.
    pub fn new(memory: &'a GuestMemory, places: Places) -> Self {
        Self {
            memory,
            places,
            buffer: Vec::new(),
        }
    }
}

impl Rings for GuestRings<'_> {
    fn cpus(&self) -> u32 {
        self.places.get().map_or(0, |places| places.len() as u32)
    }

    fn collect(&mut self, cpu: u32, from: u64, each: &mut dyn FnMut(u64, Event)) -> Result<u64> {
        let place = self
            .places
            .get()
            .and_then(|places| places.get(cpu as usize));
        let Some(&(block, words)) = place else {
            return Ok(from);
        };
        let tables = faultless_trace::Latencies::WORDS as u64;
        let capacity = words.saturating_sub(tables + HEADER as u64) / WORDS as u64;
        let ring = block + tables * WORD;
        let slots = ring + HEADER as u64 * WORD;
        let slot = WORDS as u64 * WORD;

        let written = self.memory.word(ring)?;
        let mut next = from.max(written.saturating_sub(capacity));
        while next < written {
            // Up to the ring's end, and no more than fits in the caches.
            let at = next % capacity;
            let count = (written - next).min(capacity - at).min(4096);
            self.buffer.resize((count * slot) as usize, 0);
            self.memory.read(slots + at * slot, &mut self.buffer)?;
            let later = self.memory.word(ring)?;
            let whole = Ring::whole(next..next + count, later, capacity);
            for (number, bytes) in (next..).zip(self.buffer.chunks_exact(slot as usize)) {
                let mut words = [0; WORDS];
                for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(WORD as usize)) {
                    *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
                }
                if whole.contains(&number)
                    && let Some(event) = Event::from_words(words)
                {
                    each(number, event);
                }
            }
            next += count;
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;
    use std::sync::Arc;

    use super::{Arch, GuestMemory, GuestRings, Rings as _, Size, offset, parse_places};
    use faultless_trace::{Event, HEADER, Kind, Latencies, WORDS};

    #[test]
    fn reads_where_the_rings_are() {
        assert_eq!(
            parse_places(b"trace [[4096,512],[8192,512]]").unwrap(),
            [(4096, 512), (8192, 512)]
        );
        assert!(parse_places(b"{\"exit\":0}").is_none());
        assert!(parse_places(b"trace [[4096").is_none());
    }

    #[test]
    fn memory_above_the_hole_follows_that_below() {
        let at = |mebi, physical| offset(Arch::X86_64, Size::mebi(mebi), physical);
        assert_eq!(at(1024, 5 << 20), 5 << 20);
        assert_eq!(at(4096, 1 << 31), 1 << 31);
        assert_eq!(at(4096, (4 << 30) + 7), (2 << 30) + 7);
        let at = |physical| offset(Arch::AArch64, Size::mebi(4096), physical);
        assert_eq!(at((4 << 30) + 7), (3 << 30) + 7);
    }

    #[test]
    fn reads_a_ring_that_wraps_and_counts_what_is_lost() {
        const BLOCK: u64 = 1 << 16;
        const CAPACITY: u64 = 10;
        let memory = GuestMemory::new(Size::mebi(1), Arch::X86_64).unwrap();
        let words = Latencies::WORDS + HEADER + CAPACITY as usize * WORDS;
        let places = Arc::default();
        let mut rings = GuestRings::new(&memory, Arc::clone(&places));
        assert_eq!(rings.cpus(), 0);
        places.set(vec![(BLOCK, words as u64)]).unwrap();
        assert_eq!(rings.cpus(), 1);

        let ring = BLOCK + Latencies::WORDS as u64 * 8;
        let event = |n: u64| Event::slice(Kind::Mmap, n, n + 1, n, n);
        let events = |numbers: std::ops::Range<u64>| numbers.map(|n| (n, event(n))).collect();
        let mut written = 0;
        let mut write = |count: u64| {
            for n in written..written + count {
                let slot = ring + (HEADER as u64 + n % CAPACITY * WORDS as u64) * 8;
                for (at, word) in (0..).zip(event(n).to_words()) {
                    memory
                        .file
                        .write_all_at(&word.to_le_bytes(), slot + at * 8)
                        .unwrap();
                }
            }
            written += count;
            memory
                .file
                .write_all_at(&written.to_le_bytes(), ring)
                .unwrap();
        };
        let mut read = |from| {
            let mut seen = Vec::new();
            let mut each = |number, event| seen.push((number, event));
            let next = rings.collect(0, from, &mut each).unwrap();
            (seen, next)
        };
        write(7);
        assert_eq!(read(0), (events(0..7), 7));
        write(6);
        assert_eq!(read(7), (events(7..13), 13));
        write(25);
        // The slot of the next write is not trusted.
        assert_eq!(read(13), (events(29..38), 38));
    }
}
