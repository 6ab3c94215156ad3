//! Programs on the soft machine: a process is an address space, and a thread is one of the machine's CPUs,
//! run by a thread of the host.

mod barriers;
mod cpu;
mod files;
mod swap;

use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::thread;

use faultless_mm::{
    AddressSpace, Counter, Cpu, FrameSource as _, HugeMode, Layout, Limits, Machine as _,
    OwnedSpace, Policy,
};
use faultless_soft::{Options, Soft, SoftCpu, SoftMemory, SoftSpace};

use crate::Record;
use crate::address::{PAGE, Scene};
use crate::conclude::conclude;
use crate::line::Line;
use crate::memory::{Limited, MOST_LOCKED};
use crate::op::Actor;
use crate::program::{MOST_PROCESSES, MOST_THREADS, Program};
use crate::schedule::{Turn, actor, turn};
use barriers::Barriers;
use cpu::OnSoft;
use files::Files;
use swap::{Device, Swap};

/// The start of heaps on this machine.
const HEAP: u64 = 0x5555_5580_0000;
/// Bytes of memory; no program needs more.
const MEMORY: u64 = 192 << 20;
/// The most pages of one mapping: more than any program requests that some system would accept.
const COMMIT: u64 = (1 << 30) / PAGE;

/// A machine with all checks enabled.
pub struct SoftMachine {
    memory: &'static SoftMemory,
    swap: Swap,
}

impl SoftMachine {
    /// Starts a machine with a CPU for each thread of a program.
    ///
    /// # Errors
    /// When the host has no memory for it.
    pub fn start() -> std::io::Result<Self> {
        let options = Options {
            cpus: MOST_PROCESSES * MOST_THREADS,
            memory: MEMORY,
            check: true,
            ..Options::default()
        };
        let memory = Soft::start(options)?;
        memory.set_huge_mode(HugeMode::Always);
        let swap = SoftCpu::attend(memory, 0, || {
            // It stays, once it is made.
            let _ = memory.machine().frames().make_huge_zero(Cpu(0));
            Device::begin(memory)
        });
        let swap = swap.map_err(|errno| std::io::Error::from_raw_os_error(errno.0))?;
        Ok(SoftMachine { memory, swap })
    }

    /// The total of a counter over all programs.
    pub fn total(&self, counter: Counter) -> u64 {
        self.memory.total(counter)
    }

    /// Runs a program in new address spaces. Its record says so if they were not sound in the end,
    /// or if frames leaked.
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
            swap: &self.swap,
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
                if program.limits(Limited::Locked) {
                    space.set_limits(&Limits {
                        locked: MOST_LOCKED,
                        locks_freely: false,
                        ..space.limits()
                    });
                }
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
            let sound =
                AddressSpace::verify_together(&all).map_err(|violation| violation.to_string());
            for space in spaces {
                space.destroy();
            }
            drop(family.files);
            self.swap
                .begin_again()
                .map_err(|error| error.to_string())
                .and(sound)
        });
        let after = self.available();
        match sound {
            Err(why) => wrong(&why),
            Ok(_) if self.swap.used() != 0 => {
                wrong(&format!("{} pages left on the device", self.swap.used()))
            }
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
            Scene::Open | Scene::Heap | Scene::Huge => layout,
            Scene::Sealed => Layout {
                lowest: window.start,
                mmap_base: window.end,
                ..layout
            },
        };
        let space = OwnedSpace::new(self.memory, policy, layout)?;
        // As in the other executor.
        space.set_huge_off(scene != Scene::Huge);
        Ok(space)
    }

    /// The number of frames that are free or cached, after all deferred frees.
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

/// A record that equals no other.
fn wrong(why: &str) -> Record {
    Record {
        text: format!("the soft machine is wrong: {why}\n"),
        status: 1,
    }
}

/// A running program.
struct Family<'a> {
    program: &'a Program,
    files: Files,
    swap: &'a Swap,
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

    /// Runs all operations of an actor.
    fn act(&self, me: Actor) {
        let mine = |number: &usize| actor(self.program, *number) == Some(me);
        let count = self.program.ops.len() + MOST_PROCESSES;
        let mut numbers = (0..count).filter(mine).peekable();
        let Some(&first) = numbers.peek() else { return };
        // The process exists when the actor's first turn begins.
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
                swap: self.swap,
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
            // Writing to a string does not fail.
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

    /// Ends a step; an actor's last step in a turn ends its part of the turn.
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

/// The present turn.
#[derive(Default)]
struct Turns {
    /// The turn, and how many of its actors have ended.
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
    /// The swap device.
    pub swap: &'a Swap,
    /// The process's registrations.
    pub barriers: &'a Barriers,
}

impl<'s> Here<'_, 's> {
    /// The address space.
    pub fn space(&self) -> &'s SoftSpace {
        self.cpu.space()
    }
}
