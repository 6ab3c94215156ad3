//! Whose turn it is.
//!
//! Operations are numbered. Those side by side are one turn, of all who take part in it; every other
//! one is a turn of its own. After the last come turns in which the processes, in order, look at
//! what they have.

use crate::op::Actor;
use crate::program::{MOST_PROCESSES, MOST_THREADS, Program};

/// A turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The first operation, and who does it.
    pub start: usize,
    /// The operation after the last.
    pub end: usize,
    /// How many take part.
    pub actors: usize,
}

/// Who does operation `number`, or looks at what there is after the last one.
pub fn actor(program: &Program, number: usize) -> Option<Actor> {
    if let Some(op) = program.ops.get(number) {
        return Some(op.actor);
    }
    let mut processes = (0..MOST_PROCESSES as u8).filter(|&process| program.has_process(process));
    let process = processes.nth(number - program.ops.len())?;
    Some(Actor { process, thread: 0 })
}

/// The turn to which operation `number` belongs.
pub fn turn(program: &Program, number: usize) -> Turn {
    let beside = |number: usize| {
        let op = program.ops.get(number)?;
        op.beside.then_some(op.actor)
    };
    let Some(actor) = beside(number) else {
        return Turn {
            start: number,
            end: number + 1,
            actors: 1,
        };
    };
    let same = |number| beside(number).is_some_and(|other| other.process == actor.process);
    let mut start = number;
    while start > 0 && same(start - 1) {
        start -= 1;
    }
    let mut end = number + 1;
    while same(end) {
        end += 1;
    }
    let mut there = [false; MOST_THREADS];
    for op in &program.ops[start..end] {
        there[usize::from(op.actor.thread)] = true;
    }
    let actors = there.iter().filter(|&&there| there).count();
    Turn { start, end, actors }
}
