//! Files in memory on the soft machine: the part of a port around the core's memory objects, as far as
//! programs need it. Callers run as a CPU of the machine.

use std::sync::{Mutex, MutexGuard, PoisonError};

use faultless_mm::{Errno, MemoryObject, NoMemory, PhysicalMemory};
use faultless_soft::{Soft, SoftMemory};

use crate::address::PAGE;
use crate::program::FILES;

const KEEP_SIZE: u64 = 1;
const PUNCH_HOLE: u64 = 2;
/// The largest size of a file.
const LARGEST: u64 = i64::MAX as u64;

/// The files of a program, if it has any.
pub struct Files(Vec<File>);

struct File {
    store: MemoryObject<Soft>,
    /// Serialises truncations and writes.
    turn: Mutex<()>,
}

impl Files {
    /// Makes empty files.
    pub fn new(memory: &'static SoftMemory, has_files: bool) -> Result<Self, NoMemory> {
        let count = if has_files { FILES as u64 } else { 0 };
        let file = |number| {
            Ok(File {
                store: MemoryObject::new(memory, 0, None, number)?,
                turn: Mutex::new(()),
            })
        };
        (0..count).map(file).collect::<Result<_, _>>().map(Files)
    }

    fn file(&self, number: u64) -> Result<&File, Errno> {
        let file = usize::try_from(number).ok().and_then(|n| self.0.get(n));
        file.ok_or(Errno(libc::EBADF))
    }

    /// The pages of a file.
    pub fn store(&self, number: u64) -> Result<&MemoryObject<Soft>, Errno> {
        Ok(&self.file(number)?.store)
    }

    /// `ftruncate`.
    pub fn truncate(&self, number: u64, length: u64) -> Result<(), Errno> {
        if length > LARGEST {
            return Err(Errno::EINVAL);
        }
        let file = self.file(number)?;
        let _turn = file.take();
        file.store.truncate(length)
    }

    /// `fallocate`.
    pub fn allocate(&self, number: u64, mode: u64, offset: u64, length: u64) -> Result<(), Errno> {
        let file = self.file(number)?;
        if offset > LARGEST || length == 0 || length > LARGEST {
            return Err(Errno::EINVAL);
        }
        if !matches!(mode, 0 | KEEP_SIZE) && mode != PUNCH_HOLE | KEEP_SIZE {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let end = offset + length;
        if end > LARGEST {
            return Err(Errno(libc::EFBIG));
        }
        let _turn = file.take();
        if mode & PUNCH_HOLE != 0 {
            return file.store.punch(offset..end);
        }
        // Pages behind the end are not reserved.
        let end = match mode & KEEP_SIZE {
            0 => end,
            _ => end.min(file.store.size()),
        };
        for index in offset / PAGE..end.div_ceil(PAGE) {
            file.store.page_to_write(index)?;
        }
        if mode & KEEP_SIZE == 0 {
            file.store.extend(end);
        }
        Ok(())
    }

    /// `pread` of words, at a word's offset. Returns the number of bytes before the end.
    pub fn read(&self, number: u64, offset: u64, to: &mut [u64]) -> Result<u64, Errno> {
        let file = self.file(number)?;
        if offset > LARGEST {
            return Err(Errno::EINVAL);
        }
        let left = file.store.size().saturating_sub(offset);
        let bytes = left.min(8 * to.len() as u64);
        for (word, at) in to.iter_mut().zip((offset..).step_by(8)) {
            let here = left.saturating_sub(at - offset).min(8);
            if here == 0 {
                break;
            }
            let page = file.store.page(at / PAGE)?;
            let value = page.map_or(0, |page| {
                let start = file.store.memory().machine().pointer(page.frame());
                // SAFETY: an aligned word inside the frame, which is pinned; no thread writes it now.
                unsafe { start.byte_add((at % PAGE) as usize).cast::<u64>().read() }
            });
            let missing = 8 * (8 - here) as u32;
            *word = value << missing >> missing;
        }
        Ok(bytes)
    }

    /// `pwrite` of a word, at a word's offset.
    pub fn write(&self, number: u64, offset: u64, value: u64) -> Result<u64, Errno> {
        let file = self.file(number)?;
        if offset > LARGEST {
            return Err(Errno::EINVAL);
        }
        let end = offset + 8;
        if end > LARGEST {
            return Err(Errno(libc::EFBIG));
        }
        let _turn = file.take();
        let index = offset / PAGE;
        loop {
            let page = file.store.page_to_write(index)?;
            let start = file.store.memory().machine().pointer(page.frame());
            // SAFETY: as in `read`.
            unsafe {
                let word = start.byte_add((offset % PAGE) as usize).cast::<u64>();
                word.write(value);
            }
            if file.store.extend_with(end, index, &page) {
                return Ok(8);
            }
        }
    }
}

impl File {
    fn take(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
