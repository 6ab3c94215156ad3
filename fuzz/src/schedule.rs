//! The order of turns.
//!
//! Operations are numbered. Operations that run side by side form one turn of all their actors; every other
//! operation is a turn of its own. After the last one follow turns in which each process, in order, reports
//! its final state.

use crate::op::Actor;
use crate::program::{MOST_PROCESSES, MOST_THREADS, Program};

/// A turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The first operation of the turn.
    pub start: usize,
    /// The operation after the last.
    pub end: usize,
    /// The number of actors in the turn.
    pub actors: usize,
}

/// The actor of operation `number`, or of a report after the last operation.
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
