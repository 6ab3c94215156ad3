//! A thread of a process, as what operations are done on.

use crate::address::{PAGE, Scene};
use crate::kind::{Act, Arguments};
use crate::memory::{Mapping, Memory, Signal};

use super::{maps, probe};

/// Pages whose answer by `mincore` fits the thread's own memory.
const FEW: usize = 1024;
/// Pages for which there is room at all; no mapping of a program has more.
const MANY: usize = 1 << 19;

/// For long answers, of which there is one at a time.
static mut LONG: [u8; MANY] = [0; MANY];

/// The calling thread.
pub struct OnLinux {
    pub heap: u64,
    pub scene: Scene,
    there: [u8; FEW],
}

impl OnLinux {
    pub fn new(heap: u64, scene: Scene) -> Self {
        OnLinux {
            heap,
            scene,
            there: [0; FEW],
        }
    }
}

fn call(number: i64, arguments: &Arguments) -> Result<u64, i32> {
    let [a, b, c, d, e, f] = *arguments;
    // SAFETY: programs name addresses where nothing but theirs is.
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

    fn page(&mut self, address: u64) -> Result<&[u64; 512], Signal> {
        probe::load(address)?;
        // SAFETY: its first word could be read, so all can, and nobody else acts now.
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
        // SAFETY: so many bytes were written, and nobody else asks for so much now.
        Ok(unsafe { std::slice::from_raw_parts(to, pages.min(MANY)) })
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
        maps::read(end, show);
    }
}
