//! A CPU of the soft machine, which executes operations.

use faultless_mm::{Counter, Errno, Limits, PhysicalMemory, Taken, advice};
use faultless_soft::Trap;

use super::{HEAP, Here};
use crate::address::{PAGE, Scene};
use crate::kind::{Act, Arguments};
use crate::memory::{Faults, Limited, MOST_LOCKED, Mapping, Memory, Signal};

/// The signal of both kinds of failed accesses.
const SEGV: i32 = 11;
/// `si_code` of an access beyond a file's end.
const BUS_ADRERR: i32 = 2;
/// The signal of a program that Linux would kill.
const KILLED: i32 = 9;

/// A CPU, which executes operations.
pub struct OnSoft<'a, 's> {
    pub here: Here<'a, 's>,
    scene: Scene,
    is_forked: bool,
    page: Box<[u64; 512]>,
    there: Vec<u8>,
}

impl<'a, 's> OnSoft<'a, 's> {
    pub fn new(here: Here<'a, 's>, scene: Scene, is_forked: bool) -> Self {
        OnSoft {
            here,
            scene,
            is_forked,
            page: Box::new([0; 512]),
            there: Vec::new(),
        }
    }

    /// The faults that were charged to this CPU.
    fn faults(&self) -> Faults {
        let counters = self.here.space().memory().this_cpu().counters();
        let [all, refused, failed, major] = [
            Counter::Faults,
            Counter::FaultsRefused,
            Counter::FaultsFailed,
            Counter::MajorFaults,
        ]
        .map(|counter| counters.get(counter));
        Faults {
            minor: all - refused - failed - major,
            major,
        }
    }
}

fn signal(trap: Trap) -> Signal {
    match trap {
        Trap::Segv { code, address } => Signal {
            number: SEGV,
            code: code as i32,
            address,
        },
        Trap::Bus { address } => Signal {
            number: libc::SIGBUS,
            code: BUS_ADRERR,
            address,
        },
        Trap::Poisoned { address } => Signal {
            number: libc::SIGBUS,
            code: libc::BUS_MCEERR_AR,
            address,
        },
        Trap::OutOfMemory => Signal {
            number: KILLED,
            code: 0,
            address: 0,
        },
    }
}

impl Memory for OnSoft<'_, '_> {
    fn heap(&self) -> u64 {
        HEAP
    }

    fn scene(&self) -> Scene {
        self.scene
    }

    fn is_forked(&self) -> bool {
        self.is_forked
    }

    fn call(&mut self, act: &Act, arguments: &Arguments) -> Result<u64, i32> {
        match act {
            Act::Call { soft, .. } => soft(&self.here, arguments).map_err(|errno| errno.0),
            _ => Err(faultless_mm::Errno::ENOMEM.0),
        }
    }

    fn load(&mut self, address: u64) -> Result<u64, Signal> {
        self.here.cpu.load(address).map_err(signal)
    }

    fn store(&mut self, address: u64, value: u64) -> Result<(), Signal> {
        self.here.cpu.store(address, value).map_err(signal)
    }

    fn counted(
        &mut self,
        address: u64,
        value: Option<u64>,
        faults: &mut Faults,
    ) -> Result<u64, Signal> {
        let before = self.faults();
        let result = match value {
            Some(value) => self.here.cpu.store(address, value).map(|()| 0),
            None => self.here.cpu.load(address),
        };
        let after = self.faults();
        *faults = Faults {
            minor: after.minor - before.minor,
            major: after.major - before.major,
        };
        result.map_err(signal)
    }

    fn process_vm(&mut self, address: u64, words: &mut [u64], writes: bool) -> Result<u64, i32> {
        let taken = match writes {
            true => Taken::ToWrite,
            false => Taken::ToRead,
        };
        let space = self.here.space();
        let mut done = 0;
        for (word, at) in words.iter_mut().zip((address..).step_by(8)) {
            let Ok(page) = space.pin(at, taken) else {
                break;
            };
            let start = space.memory().machine().pointer(page.frame());
            // SAFETY: an aligned word inside the frame, which is pinned; only this thread acts on
            // it now.
            unsafe {
                let there = start.byte_add((at % PAGE) as usize).cast::<u64>();
                match writes {
                    true => there.write(*word),
                    false => *word = there.read(),
                }
            }
            done += 8;
        }
        match done {
            0 if !words.is_empty() => Err(Errno::EFAULT.0),
            done => Ok(done),
        }
    }

    fn clear_soft_dirty(&mut self) -> Result<(), i32> {
        self.here.space().clear_soft_dirty();
        Ok(())
    }

    fn soft_dirty(&mut self, address: u64, to: &mut [u8]) -> Result<(), i32> {
        for (to, at) in to.iter_mut().zip((address..).step_by(PAGE as usize)) {
            *to = u8::from(self.here.space().page_state(at).soft_dirty);
        }
        Ok(())
    }

    fn page(&mut self, address: u64) -> Result<&[u64; 512], Signal> {
        for (word, at) in self.page.iter_mut().zip((address..).step_by(8)) {
            *word = self.here.cpu.load(at).map_err(signal)?;
        }
        Ok(&self.page)
    }

    fn mincore(&mut self, address: u64, length: u64) -> Result<&[u8], i32> {
        self.there.clear();
        let there = &mut self.there;
        let say = |_, bytes: &[u8]| {
            there.extend_from_slice(bytes);
            Ok(())
        };
        let space = self.here.cpu.space();
        let result = space.mincore(address, length, say);
        result.map_err(|errno| errno.0)?;
        Ok(&self.there)
    }

    fn file(&self, number: u64) -> u64 {
        number
    }

    fn read(&mut self, file: u64, offset: u64, to: &mut [u64]) -> Result<u64, i32> {
        let result = self.here.files.read(file, offset, to);
        result.map_err(|errno| errno.0)
    }

    fn write(&mut self, file: u64, offset: u64, value: u64) -> Result<u64, i32> {
        let result = self.here.files.write(file, offset, value);
        result.map_err(|errno| errno.0)
    }

    fn size(&mut self, file: u64) -> Result<u64, i32> {
        let store = self.here.files.store(file);
        store.map(|store| store.size()).map_err(|errno| errno.0)
    }

    fn process_madvise(&mut self, address: u64, length: u64, what: u64) -> Result<u64, i32> {
        // The call is a kernel's: only the advice that Linux 6.12 accepts for it reaches the core.
        let what = what as i32;
        if !matches!(
            what,
            advice::COLD | advice::PAGEOUT | advice::WILLNEED | advice::COLLAPSE
        ) {
            return Err(Errno::EINVAL.0);
        }
        // An empty range is not checked.
        if length == 0 {
            return Ok(0);
        }
        let result = self.here.space().madvise(address, length, what);
        result.map(|()| length).map_err(|errno| errno.0)
    }

    fn limit(&mut self, what: Limited, more: u64) -> Result<(), i32> {
        let space = self.here.space();
        let now = space.totals();
        let bytes = |now: u64| match more {
            u64::MAX => u64::MAX,
            // No process on Linux has zero pages, and a limit of 0 has a special meaning.
            more => ((now + more) * PAGE).max(1),
        };
        let mut limits: Limits = space.limits();
        match what {
            Limited::Mapped => limits.address_space = bytes(now.mapped),
            Limited::Data => limits.data = bytes(now.data),
            Limited::Stack => limits.stack = more.saturating_mul(PAGE),
            Limited::Locked => {
                let most = more.saturating_add(now.locked).saturating_mul(PAGE);
                limits.locked = most.min(MOST_LOCKED);
            }
        }
        space.set_limits(&limits);
        Ok(())
    }

    fn swap(&mut self, on: bool) -> Result<(), i32> {
        self.here.swap.set(on).map_err(|errno| errno.0)
    }

    fn brk(&mut self, address: u64) -> u64 {
        self.here.cpu.space().brk(address)
    }

    fn unmap(&mut self, address: u64, length: u64) -> Result<(), i32> {
        let result = self.here.cpu.space().munmap(address, length);
        result.map_err(|errno| errno.0)
    }

    fn make_readable(&mut self, address: u64, length: u64) -> Result<(), i32> {
        let result = self.here.cpu.space().mprotect(address, length, 1);
        result.map_err(|errno| errno.0)
    }

    fn maps(&mut self, end: u64, show: &mut dyn FnMut(Mapping)) {
        self.here.cpu.space().maps(&mut |line| {
            let p = line.protection;
            if line.start < end {
                show(Mapping {
                    start: line.start,
                    end: line.end,
                    prot: u8::from(p.read) | u8::from(p.write) << 1 | u8::from(p.execute) << 2,
                    shared: line.shared,
                    file: line.file.and_then(|file| (file.file as u8).checked_sub(1)),
                    offset: line.file.map_or(0, |file| file.offset),
                });
            }
        });
    }
}
