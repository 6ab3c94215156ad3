//! A thread of a process, which executes operations.

use crate::address::{PAGE, Scene};
use crate::kind::{Act, Arguments};
use crate::memory::{Faults, Limited, Mapping, Memory, Signal};

use super::files::Files;
use super::{counted, dirty, limits, maps, probe, swap};

/// The most pages of a `mincore` that fits into the thread's own buffer.
const FEW: usize = 1024;
/// The most pages of any `mincore`; no mapping of a program has more.
const MANY: usize = 1 << 19;

/// For long results, of which there is one at a time.
static mut LONG: [u8; MANY] = [0; MANY];

/// The calling thread.
pub struct OnLinux {
    pub heap: u64,
    pub scene: Scene,
    is_forked: bool,
    files: Files,
    there: [u8; FEW],
}

impl OnLinux {
    pub fn new(heap: u64, scene: Scene, is_forked: bool, files: Files) -> Self {
        OnLinux {
            heap,
            scene,
            is_forked,
            files,
            there: [0; FEW],
        }
    }
}

fn call(number: i64, arguments: &Arguments) -> Result<u64, i32> {
    let [a, b, c, d, e, f] = *arguments;
    // SAFETY: programs use addresses at which only their own mappings are.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result == -1 {
        // SAFETY: the calling thread's own.
        Err(unsafe { *libc::__errno_location() })
    } else {
        Ok(result as u64)
    }
}

impl Memory for OnLinux {
    fn heap(&self) -> u64 {
        self.heap
    }

    fn scene(&self) -> Scene {
        self.scene
    }

    fn is_forked(&self) -> bool {
        self.is_forked
    }

    fn call(&mut self, act: &Act, arguments: &Arguments) -> Result<u64, i32> {
        match act {
            Act::Call { number, .. } => call(*number, arguments),
            _ => Err(libc::ENOSYS),
        }
    }

    fn load(&mut self, address: u64) -> Result<u64, Signal> {
        probe::load(address)
    }

    fn store(&mut self, address: u64, value: u64) -> Result<(), Signal> {
        probe::store(address, value)
    }

    fn counted(
        &mut self,
        address: u64,
        value: Option<u64>,
        faults: &mut Faults,
    ) -> Result<u64, Signal> {
        counted::access(address, value, faults)
    }

    fn process_vm(&mut self, address: u64, words: &mut [u64], writes: bool) -> Result<u64, i32> {
        let number = match writes {
            true => libc::SYS_process_vm_writev,
            false => libc::SYS_process_vm_readv,
        };
        // SAFETY: returns a number.
        let this = unsafe { libc::getpid() } as u64;
        let bytes = size_of_val(words) as u64;
        let here = [words.as_mut_ptr() as u64, bytes];
        let there = [address, bytes];
        let (from, to) = (here.as_ptr() as u64, there.as_ptr() as u64);
        call(number, &[this, from, 1, to, 1, 0])
    }

    fn clear_soft_dirty(&mut self) -> Result<(), i32> {
        dirty::clear()
    }

    fn soft_dirty(&mut self, address: u64, to: &mut [u8]) -> Result<(), i32> {
        dirty::look(address, to)
    }

    fn page(&mut self, address: u64) -> Result<&[u64; 512], Signal> {
        probe::load(address)?;
        // SAFETY: the first word was readable, so the whole page is, and no other thread acts now.
        Ok(unsafe { &*(address as *const [u64; 512]) })
    }

    fn mincore(&mut self, address: u64, length: u64) -> Result<&[u8], i32> {
        let pages = length.div_ceil(PAGE) as usize;
        let to = if pages <= FEW {
            self.there.as_mut_ptr()
        } else {
            (&raw mut LONG).cast()
        };
        let arguments = [address, length, to as u64, 0, 0, 0];
        call(libc::SYS_mincore, &arguments)?;
        // SAFETY: the call has written this many bytes, and no other thread uses the long buffer now.
        Ok(unsafe { std::slice::from_raw_parts(to, pages.min(MANY)) })
    }

    fn file(&self, number: u64) -> u64 {
        self.files.descriptor(number)
    }

    fn read(&mut self, file: u64, offset: u64, to: &mut [u64]) -> Result<u64, i32> {
        let (at, bytes) = (to.as_mut_ptr() as u64, size_of_val(to) as u64);
        call(libc::SYS_pread64, &[file, at, bytes, offset, 0, 0])
    }

    fn write(&mut self, file: u64, offset: u64, value: u64) -> Result<u64, i32> {
        let from = (&raw const value) as u64;
        call(libc::SYS_pwrite64, &[file, from, 8, offset, 0, 0])
    }

    fn size(&mut self, file: u64) -> Result<u64, i32> {
        call(libc::SYS_lseek, &[file, 0, libc::SEEK_END as u64, 0, 0, 0])
    }

    fn process_madvise(&mut self, address: u64, length: u64, advice: u64) -> Result<u64, i32> {
        // SAFETY: returns a number.
        let this = unsafe { libc::getpid() } as u64;
        let this = call(libc::SYS_pidfd_open, &[this, 0, 0, 0, 0, 0])?;
        let vector = [address, length];
        let vector = vector.as_ptr() as u64;
        let result = call(libc::SYS_process_madvise, &[this, vector, 1, advice, 0, 0]);
        call(libc::SYS_close, &[this, 0, 0, 0, 0, 0])?;
        result
    }

    fn limit(&mut self, what: Limited, more: u64) -> Result<(), i32> {
        limits::set(what, more)
    }

    fn swap(&mut self, on: bool) -> Result<(), i32> {
        swap::set(on)
    }

    fn brk(&mut self, address: u64) -> u64 {
        call(libc::SYS_brk, &[address, 0, 0, 0, 0, 0]).unwrap_or(0)
    }

    fn unmap(&mut self, address: u64, length: u64) -> Result<(), i32> {
        call(libc::SYS_munmap, &[address, length, 0, 0, 0, 0]).map(drop)
    }

    fn make_readable(&mut self, address: u64, length: u64) -> Result<(), i32> {
        call(libc::SYS_mprotect, &[address, length, 1, 0, 0, 0]).map(drop)
    }

    fn maps(&mut self, end: u64, show: &mut dyn FnMut(Mapping)) {
        maps::read(end, &self.files.inodes, show);
    }
}
