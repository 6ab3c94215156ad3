//! Programs on the soft machine: a process is an address space, a thread one of the machine's CPUs,
//! run by a thread of the host.

mod barriers;
mod files;

use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::thread;

use faultless_mm::{
    AddressSpace, Counter, Errno, Layout, Limits, PhysicalMemory, Policy, Taken, advice,
};
use faultless_soft::{Options, Soft, SoftCpu, SoftMemory, SoftSpace, Trap};

use crate::Record;
use crate::address::{PAGE, Scene};
use crate::conclude::conclude;
use crate::kind::{Act, Arguments};
use crate::line::Line;
use crate::memory::{Faults, Limited, Mapping, Memory, Signal};
use crate::op::Actor;
use crate::program::{MOST_PROCESSES, MOST_THREADS, Program};
use crate::schedule::{Turn, actor, turn};
use barriers::Barriers;
use files::Files;

/// Where heaps begin here.
const HEAP: u64 = 0x5555_5580_0000;
/// Bytes of memory; no program needs more.
const MEMORY: u64 = 64 << 20;
/// Pages that one mapping may have: more than any program asks for that is not refused everywhere.
const COMMIT: u64 = (1 << 30) / PAGE;
/// The signal that both kinds of bad accesses give here.
const SEGV: i32 = 11;
/// `si_code` of an access beyond a file's end.
const BUS_ADRERR: i32 = 2;
/// Linux would kill the program.
const KILLED: i32 = 9;

/// A machine that checks itself.
pub struct SoftMachine {
    memory: &'static SoftMemory,
}

impl SoftMachine {
    /// Starts one, with a CPU for each thread of a program.
    ///
    /// # Errors
    /// When the host cannot give it its memory.
    pub fn start() -> std::io::Result<Self> {
        let options = Options {
            cpus: MOST_PROCESSES * MOST_THREADS,
            memory: MEMORY,
            check: true,
            ..Options::default()
        };
        Ok(SoftMachine {
            memory: Soft::start(options)?,
        })
    }

    /// Runs a program in new address spaces. Its record says so if they were not sound in the end,
    /// or kept memory.
    pub fn run(&self, program: &Program, policy: Policy) -> Record {
        let before = self.available();
        let files = SoftCpu::attend(self.memory, 0, || {
            Files::new(self.memory, program.has_files())
        });
        let files = match files {
            Ok(files) => files,
            Err(error) => return wrong(&error.to_string()),
        };
        let family = Family {
            program,
            files,
            barriers: Default::default(),
            spaces: [const { OnceLock::new() }; MOST_PROCESSES],
            turns: Turns::default(),
            lines: Mutex::new(vec![Line::new(); program.ops.len()]),
            text: Mutex::new(String::new()),
        };
        let space = SoftCpu::attend(self.memory, 0, || self.space(program.scene, policy));
        match space {
            Ok(space) => {
                space.set_brk(HEAP);
                let _ = family.spaces[0].set(space);
            }
            Err(error) => return wrong(&error.to_string()),
        }
        family.run();
        let text = family
            .text
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let spaces: Vec<SoftSpace> = family
            .spaces
            .into_iter()
            .filter_map(OnceLock::into_inner)
            .collect();
        let sound = SoftCpu::attend(self.memory, 0, || {
            let all: Vec<&SoftSpace> = spaces.iter().collect();
            let sound = SoftSpace::verify_together(&all).map_err(|violation| violation.to_string());
            for space in spaces {
                space.destroy();
            }
            drop(family.files);
            sound
        });
        let after = self.available();
        match sound {
            Err(why) => wrong(&why),
            Ok(_) if after != before => wrong(&format!("{before} frames before, {after} after")),
            Ok(_) => Record { text, status: 0 },
        }
    }

    fn space(&self, scene: Scene, policy: Policy) -> Result<SoftSpace, faultless_mm::NoMemory> {
        let layout = Layout {
            commit_pages: COMMIT,
            ..Layout::LINUX_X86_64
        };
        let window = scene.window(HEAP);
        let layout = match scene {
            Scene::Open | Scene::Heap => layout,
            Scene::Sealed => Layout {
                lowest: window.start,
                mmap_base: window.end,
                ..layout
            },
        };
        AddressSpace::new(self.memory, policy, layout)
    }

    /// Frames that are free or cached, with nothing deferred.
    fn available(&self) -> u64 {
        SoftCpu::attend(self.memory, 0, || {
            for _ in 0..4 {
                self.memory.expedite();
            }
            self.memory.drain();
        });
        self.memory.machine().allocator().census().available()
    }
}

/// A record that is like no other.
fn wrong(why: &str) -> Record {
    Record {
        text: format!("the soft machine is wrong: {why}\n"),
        status: 1,
    }
}

/// A program that runs.
struct Family<'a> {
    program: &'a Program,
    files: Files,
    barriers: [Barriers; MOST_PROCESSES],
    spaces: [OnceLock<SoftSpace>; MOST_PROCESSES],
    turns: Turns,
    lines: Mutex<Vec<Line>>,
    text: Mutex<String>,
}

impl Family<'_> {
    fn run(&self) {
        let first = Actor::default();
        thread::scope(|scope| {
            for process in 0..MOST_PROCESSES as u8 {
                for thread in 0..MOST_THREADS as u8 {
                    let actor = Actor { process, thread };
                    let takes_part =
                        self.program.has_process(process) && self.program.has_thread(actor);
                    if takes_part && actor != first {
                        scope.spawn(move || self.act(actor));
                    }
                }
            }
            self.act(first);
        });
    }

    /// Everything that an actor does.
    fn act(&self, me: Actor) {
        let mine = |number: &usize| actor(self.program, *number) == Some(me);
        let count = self.program.ops.len() + MOST_PROCESSES;
        let mut numbers = (0..count).filter(mine).peekable();
        let Some(&first) = numbers.peek() else { return };
        // Its process is there when its first turn has come.
        self.turns.wait(turn(self.program, first).start);
        let Some(space) = self.spaces[usize::from(me.process)].get() else {
            for number in numbers {
                let turn = turn(self.program, number);
                self.turns.wait(turn.start);
                self.end(me, number, turn);
            }
            return;
        };
        let cpu = u32::from(me.process) * MOST_THREADS as u32 + u32::from(me.thread);
        SoftCpu::run(space, cpu, |cpu| {
            let here = Here {
                cpu,
                files: &self.files,
                barriers: &self.barriers[usize::from(me.process)],
            };
            let mut on = OnSoft::new(here, self.program.scene, me.process != 0);
            for number in numbers {
                let turn = turn(self.program, number);
                self.turns.wait(turn.start);
                self.step(me, number, &mut on);
                self.end(me, number, turn);
            }
        });
    }

    fn step(&self, me: Actor, number: usize, on: &mut OnSoft<'_, '_>) {
        let Some(op) = self.program.ops.get(number) else {
            let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
            let answer = |number: usize| lines[number];
            // A string takes everything.
            let _ = conclude(self.program, me.process, &answer, on, &mut *text);
            return;
        };
        let mut line = Line::new();
        match op.forks() {
            None => op.run(on, &mut line),
            Some(child) => {
                let child = usize::from(child);
                self.barriers[child].inherit(on.here.barriers);
                fork(on.here.space(), &self.spaces[child], &mut line)
            }
        }
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)[number] = line;
    }

    /// Ends a step; the last of an actor's in a turn ends its part of that.
    fn end(&self, me: Actor, number: usize, turn: Turn) {
        let mut rest = number + 1..turn.end;
        if !rest.any(|number| actor(self.program, number) == Some(me)) {
            self.turns.pass(turn);
        }
    }
}

fn fork(space: &SoftSpace, child: &OnceLock<SoftSpace>, line: &mut Line) {
    use std::fmt::Write as _;
    let _ = match space.fork() {
        Ok(space) => {
            let _ = child.set(space);
            write!(line, "forked")
        }
        Err(error) => write!(line, "fork: {error}"),
    };
}

/// Whose turn it is.
#[derive(Default)]
struct Turns {
    /// The turn, and how many who act side by side have ended.
    now: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Turns {
    fn wait(&self, start: usize) {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let is_early = |now: &mut (usize, usize)| now.0 < start;
        drop(self.changed.wait_while(now, is_early));
    }

    fn pass(&self, turn: Turn) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.1 += 1;
        if now.1 == turn.actors {
            *now = (turn.end, 0);
            self.changed.notify_all();
        }
    }
}

/// A CPU, and the files of the program that it runs.
pub struct Here<'a, 's> {
    /// The CPU.
    pub cpu: &'a SoftCpu<'s>,
    /// The files.
    pub files: &'a Files,
    /// What the process has registered for.
    pub barriers: &'a Barriers,
}

impl<'s> Here<'_, 's> {
    /// The address space.
    pub fn space(&self) -> &'s SoftSpace {
        self.cpu.space()
    }
}

/// A CPU, as what operations are done on.
struct OnSoft<'a, 's> {
    here: Here<'a, 's>,
    scene: Scene,
    is_forked: bool,
    page: Box<[u64; 512]>,
    there: Vec<u8>,
}

impl<'a, 's> OnSoft<'a, 's> {
    fn new(here: Here<'a, 's>, scene: Scene, is_forked: bool) -> Self {
        OnSoft {
            here,
            scene,
            is_forked,
            page: Box::new([0; 512]),
            there: Vec::new(),
        }
    }

    /// The faults that this CPU was charged with.
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
        // The call is a kernel's: what Linux 6.12 lets through is advice like any other.
        let what = what as i32;
        if !matches!(
            what,
            advice::COLD | advice::PAGEOUT | advice::WILLNEED | advice::COLLAPSE
        ) {
            return Err(Errno::EINVAL.0);
        }
        // A piece of no length is not looked at.
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
            // No process on Linux has nothing; and a limit of 0 is none of its own.
            more => ((now + more) * PAGE).max(1),
        };
        let mut limits: Limits = space.limits();
        match what {
            Limited::Mapped => limits.address_space = bytes(now.mapped),
            Limited::Data => limits.data = bytes(now.data),
            Limited::Stack => limits.stack = more.saturating_mul(PAGE),
            Limited::Locked => {
                limits.locks_freely = false;
                limits.locked = more.saturating_add(now.locked).saturating_mul(PAGE);
            }
        }
        space.set_limits(&limits);
        Ok(())
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
