//! The soft machine as the memory of scripts.

use faultless_mm::{Errno, Layout, Limits, OwnedSpace, Policy};
use faultless_soft::{SoftCpu, SoftMemory, SoftSpace, Trap};

use crate::script::{Family, Limit, Memory, Op, PAGE, Remap, Signal, Window, run};

/// A CPU of the soft machine, for scripts.
pub struct OnSoft<'a, 's>(pub &'a SoftCpu<'s>);

fn number(errno: Errno) -> i32 {
    errno.0
}

fn signal(trap: Trap) -> Signal {
    match trap {
        Trap::Segv { code, address } => (code as i32, address),
        // As the child on the host reports a signal that is not SIGSEGV.
        Trap::Bus { address } => (1000 + 7, address),
        Trap::Poisoned { address } => (2000 + 7, address),
        Trap::OutOfMemory => (-1, 0),
    }
}

impl Memory for OnSoft<'_, '_> {
    fn mmap(&mut self, address: u64, length: u64, prot: u32, flags: u32) -> Result<u64, i32> {
        let space = self.0.space();
        space.mmap(address, length, prot, flags).map_err(number)
    }
    fn munmap(&mut self, address: u64, length: u64) -> Result<(), i32> {
        self.0.space().munmap(address, length).map_err(number)
    }
    fn mprotect(&mut self, address: u64, length: u64, prot: u32) -> Option<Result<(), i32>> {
        let space = self.0.space();
        Some(space.mprotect(address, length, prot).map_err(number))
    }
    fn madvise(&mut self, address: u64, length: u64, advice: i32) -> Result<(), i32> {
        let space = self.0.space();
        space.madvise(address, length, advice).map_err(number)
    }
    fn mremap(&mut self, call: Remap) -> Option<Result<u64, i32>> {
        let Remap {
            old,
            old_length,
            length,
            flags,
            to,
        } = call;
        let space = self.0.space();
        let result = space.mremap(old, old_length, length, flags, to);
        Some(result.map_err(number))
    }
    fn mincore(&mut self, address: u64, length: u64) -> Result<Vec<u8>, i32> {
        let mut all = Vec::new();
        let say = |_, there: &[u8]| {
            all.extend_from_slice(there);
            Ok(())
        };
        let space = self.0.space();
        let result = space.mincore(address, length, say);
        result.map(|()| all).map_err(number)
    }
    fn mseal(&mut self, address: u64, length: u64) -> Result<(), i32> {
        self.0.space().mseal(address, length, 0).map_err(number)
    }
    fn brk(&mut self, address: u64) -> u64 {
        self.0.space().brk(address)
    }
    fn mlock(&mut self, address: u64, length: u64, flags: u32) -> Result<(), i32> {
        self.0.space().mlock(address, length, flags).map_err(number)
    }
    fn munlock(&mut self, address: u64, length: u64) -> Result<(), i32> {
        self.0.space().munlock(address, length).map_err(number)
    }
    fn mlockall(&mut self, flags: u32) -> Result<(), i32> {
        self.0.space().mlockall(flags).map_err(number)
    }
    fn munlockall(&mut self) {
        self.0.space().munlockall();
    }
    fn limit(&mut self, limit: Limit) {
        let space = self.0.space();
        let (mut limits, totals) = (space.limits(), space.totals());
        let bytes = |pages: u64| pages.saturating_mul(PAGE);
        match limit {
            Limit::Mapped(more) => {
                limits.address_space = bytes(totals.mapped.saturating_add(more));
            }
            // Not 0, which has a special meaning, and which the host never has.
            Limit::Data(more) => limits.data = bytes(totals.data.saturating_add(more)) | 1,
            Limit::Stack(pages) => limits.stack = bytes(pages),
            Limit::Locked(pages) => limits.locked = bytes(pages),
        }
        space.set_limits(&limits);
    }
    fn totals(&mut self) -> [u64; 4] {
        let totals = self.0.space().totals();
        [totals.mapped, totals.data, totals.stack, totals.locked]
    }
    fn load(&mut self, address: u64) -> Result<u64, Signal> {
        self.0.load(address).map_err(signal)
    }
    fn store(&mut self, address: u64, value: u64) -> Result<(), Signal> {
        self.0.store(address, value).map_err(signal)
    }
    fn maps(&mut self, show: &mut dyn FnMut(u64, u64, u32)) {
        self.0.space().maps(&mut |line| {
            let p = line.protection;
            let prot = u32::from(p.read) | u32::from(p.write) << 1 | u32::from(p.execute) << 2;
            show(line.start, line.end, prot);
        });
    }

    /// The child runs on the next CPU; families are never deeper than there are CPUs.
    fn fork(&mut self, family: &Family<'_>, answer: &mut dyn FnMut(String)) {
        let cpu = self.0.number() + 1;
        let child = match self.0.space().fork() {
            Ok(child) => child,
            Err(e) => return answer(format!("fork: {e}")),
        };
        let window = family.window;
        family.run(self, answer, |_, answer| {
            let lines = std::thread::scope(|scope| {
                let script = family.child;
                let child = &child;
                let thread = scope.spawn(move || {
                    SoftCpu::run(child, cpu, |cpu| {
                        run_lines(&mut OnSoft(cpu), window, script)
                    })
                });
                thread.join()
            });
            match lines {
                Ok(lines) => lines.into_iter().for_each(answer),
                Err(_) => answer("the child panicked".into()),
            }
        });
        // Only the child: pages may be shared with spaces that are not accessible here.
        if let Err(violation) = child.verify() {
            answer(violation.to_string());
        }
        child.destroy();
    }
}

fn run_lines(on: &mut OnSoft<'_, '_>, window: &Window, script: &[Op]) -> Vec<String> {
    let mut lines = Vec::new();
    run(on, window, script, &mut |line| lines.push(line));
    lines
}

/// Runs a script in a new address space on CPU 0 with these limits; verifies the space and frees every
/// frame. Returns the lines, and the violations.
pub fn run_soft(
    memory: &'static SoftMemory,
    policy: Policy,
    layout: Layout,
    limits: &Limits,
    brk: u64,
    window: &Window,
    script: &[Op],
) -> (Vec<String>, Result<(), String>) {
    let prepare = |space: &SoftSpace| {
        space.set_brk(brk);
        space.set_limits(limits);
    };
    run_prepared(memory, policy, layout, &prepare, window, script)
}

/// The same in an address space that `prepare` has set up.
pub fn run_prepared(
    memory: &'static SoftMemory,
    policy: Policy,
    layout: Layout,
    prepare: &dyn Fn(&SoftSpace),
    window: &Window,
    script: &[Op],
) -> (Vec<String>, Result<(), String>) {
    let before = crate::available(memory);
    let space = SoftCpu::attend(memory, 0, || {
        let space = OwnedSpace::new(memory, policy, layout)
            .unwrap_or_else(|e| panic!("no address space: {e}"));
        prepare(&space);
        space
    });
    let mut lines = Vec::new();
    SoftCpu::run(&space, 0, |cpu| {
        run(&mut OnSoft(cpu), window, script, &mut |line| {
            lines.push(line)
        });
    });
    let sound = SoftCpu::attend(memory, 0, || {
        let verdict = space.verify().map(drop).map_err(|v| v.to_string());
        space.destroy();
        verdict
    });
    let after = crate::available(memory);
    let kept = if after == before {
        Ok(())
    } else {
        Err(format!("{before} frames before, {after} after"))
    };
    (lines, sound.and(kept))
}
