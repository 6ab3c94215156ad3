//! A program: operations, one after the other, of threads in processes.

use crate::address::Scene;
use crate::kind::Meaning;
use crate::kinds::{limited, pages_out};
use crate::memory::Limited;
use crate::op::{Actor, Op};

/// The most operations of a program.
pub const MOST_OPS: usize = 200;
/// The most processes of a program.
pub const MOST_PROCESSES: usize = 4;
/// The most threads of a process.
pub const MOST_THREADS: usize = 4;

/// The files of a program. They begin empty, and all its processes have them open.
pub const FILES: usize = 3;

/// A program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The addresses that it uses.
    pub scene: Scene,
    /// Its operations.
    pub ops: Vec<Op>,
}

impl Program {
    /// The program without impossible operations: those of processes that do not exist, and marks of
    /// side-by-side operations without a partner.
    pub fn normal(mut self) -> Program {
        let mut there = [false; MOST_PROCESSES];
        there[0] = true;
        self.ops.retain(|op| {
            let Some(true) = there.get(usize::from(op.actor.process)) else {
                return false;
            };
            match op.forks().map(usize::from) {
                None => usize::from(op.actor.thread) < MOST_THREADS,
                Some(child) if child < MOST_PROCESSES && !there[child] && !op.beside => {
                    there[child] = true;
                    true
                }
                Some(_) => false,
            }
        });
        self.ops.truncate(MOST_OPS);
        // Only threads of one process run side by side.
        let mut before: Option<Actor> = None;
        for op in &mut self.ops {
            op.beside &= op.forks().is_none();
            if before.is_some_and(|before| before.process != op.actor.process) {
                op.beside = false;
            }
            before = op.beside.then_some(op.actor);
        }
        self
    }

    /// Whether it uses files.
    pub fn has_files(&self) -> bool {
        let is_file = |op: &Op| {
            let mut arguments = op.kind().arguments.iter().zip(op.arguments);
            arguments.any(|(argument, value)| {
                matches!(argument.meaning, Meaning::File) && value < FILES as u64
            })
        };
        self.ops.iter().any(is_file)
    }

    /// Whether it sets a limit.
    pub fn limits(&self, what: Limited) -> bool {
        self.ops.iter().any(|op| limited(op) == Some(what))
    }

    /// Whether it pages memory out. What is in memory then depends on the swap device.
    pub fn pages_out(&self) -> bool {
        self.ops.iter().any(pages_out)
    }

    /// Whether it has the process.
    pub fn has_process(&self, process: u8) -> bool {
        process == 0 || self.ops.iter().any(|op| op.forks() == Some(process))
    }

    /// Whether it has the thread. Every process has its first.
    pub fn has_thread(&self, actor: Actor) -> bool {
        actor.thread == 0 || self.ops.iter().any(|op| op.actor == actor)
    }
}
