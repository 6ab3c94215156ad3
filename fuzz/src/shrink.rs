//! Reduces large programs to small ones that fail in the same way.
//!
//! Each round makes many smaller candidates at once, because a single test may mean to boot
//! two kernels.

use crate::address::{CENTRE, PAGE};
use crate::kind::Meaning;
use crate::op::{Actor, Op};
use crate::program::Program;

/// The most rounds of each kind.
const ROUNDS: usize = 60;

/// Returns the smallest program found that still fails. `fails` tests many at once.
///
/// # Errors
/// Those of `fails`.
pub fn shrink<E>(
    program: &Program,
    mut fails: impl FnMut(&[Program]) -> Result<Vec<bool>, E>,
) -> Result<Program, E> {
    let mut smallest = program.clone();
    for _ in 0..ROUNDS {
        let Some(smaller) = round(&smallest, fewer(&smallest), &mut fails)? else {
            break;
        };
        smallest = smaller;
    }
    for _ in 0..ROUNDS {
        let Some(smaller) = round(&smallest, simpler(&smallest), &mut fails)? else {
            break;
        };
        smallest = smaller;
    }
    Ok(smallest)
}

/// Returns the best of the candidates that fail.
fn round<E>(
    program: &Program,
    candidates: Vec<Program>,
    fails: &mut impl FnMut(&[Program]) -> Result<Vec<bool>, E>,
) -> Result<Option<Program>, E> {
    let mut candidates: Vec<Program> = candidates.into_iter().map(Program::normal).collect();
    candidates.retain(|candidate| weight(candidate) < weight(program));
    candidates.sort_by_key(weight);
    candidates.dedup();
    if candidates.is_empty() {
        return Ok(None);
    }
    let failed = fails(&candidates)?;
    let mut found = candidates.into_iter().zip(failed);
    Ok(found.find_map(|(candidate, fails)| fails.then_some(candidate)))
}

/// The order of size: first the number of operations, then of actors, then the arguments.
fn weight(program: &Program) -> (usize, usize, u64) {
    let actors = program
        .ops
        .iter()
        .map(|op| usize::from(op.beside) + usize::from(op.actor != Actor::default()));
    let values = program.ops.iter().flat_map(|op| {
        let arguments = op.kind().arguments.iter().zip(op.arguments);
        arguments.map(|(argument, value)| size(argument.meaning, value))
    });
    (program.ops.len(), actors.sum(), values.sum())
}

fn size(meaning: Meaning, value: u64) -> u64 {
    match meaning {
        Meaning::Address => {
            let distance = value.wrapping_sub(CENTRE).cast_signed().unsigned_abs();
            (distance / PAGE).min(1 << 20) * 2 + u64::from(!value.is_multiple_of(PAGE))
        }
        Meaning::Length => (value / PAGE).min(1 << 20) * 2 + u64::from(!value.is_multiple_of(PAGE)),
        Meaning::Bits(_) => u64::from(value.count_ones()),
        Meaning::Choice(_) => 0,
        Meaning::Number | Meaning::File => u64::from(64 - value.leading_zeros()),
    }
}

/// Candidates without some of the operations, or with fewer actors.
fn fewer(program: &Program) -> Vec<Program> {
    let length = program.ops.len();
    let mut all = Vec::new();
    let mut size = length / 2;
    while size > 0 {
        for start in (0..length).step_by(size) {
            let mut smaller = program.clone();
            smaller.ops.drain(start..(start + size).min(length));
            all.push(smaller);
        }
        size /= 2;
    }
    let change = |change: &dyn Fn(&mut Op)| {
        let mut other = program.clone();
        other.ops.iter_mut().for_each(change);
        other
    };
    for process in 0..4 {
        all.push(change(&|op| {
            if op.actor.process == process {
                op.actor.thread = 0;
            }
        }));
        // The parent performs the child's operations, and the child is not made.
        let mut merged = change(&|op| {
            if op.actor.process == process {
                op.actor = Actor::default();
                op.beside = false;
            }
        });
        merged.ops.retain(|op| op.forks() != Some(process));
        all.push(merged);
    }
    all.push(change(&|op| op.beside = false));
    for place in 0..length {
        if program.ops[place].beside || program.ops[place].actor != Actor::default() {
            let mut other = program.clone();
            other.ops[place].beside = false;
            all.push(other.clone());
            other.ops[place].actor = Actor::default();
            all.push(other);
        }
    }
    all
}

/// Candidates with simpler arguments.
fn simpler(program: &Program) -> Vec<Program> {
    let mut all = Vec::new();
    for (place, op) in program.ops.iter().enumerate() {
        for (number, argument) in op.kind().arguments.iter().enumerate() {
            let value = op.arguments[number];
            for simple in simple(argument.meaning, value) {
                let mut other = program.clone();
                other.ops[place].arguments[number] = simple;
                all.push(other);
            }
        }
    }
    // All addresses nearer to the centre at once.
    for by in [1u64, 8, 64] {
        for sign in [1, -1] {
            let mut other = program.clone();
            for op in &mut other.ops {
                for (argument, value) in op.kind().arguments.iter().zip(&mut op.arguments) {
                    let is_near = value.wrapping_sub(CENTRE / 2) < CENTRE;
                    if matches!(argument.meaning, Meaning::Address) && is_near {
                        *value = value.wrapping_add_signed(sign * (by * PAGE).cast_signed());
                    }
                }
            }
            all.push(other);
        }
    }
    all
}

fn simple(meaning: Meaning, value: u64) -> Vec<u64> {
    match meaning {
        Meaning::Address => vec![value & !(PAGE - 1)],
        Meaning::Length => vec![
            PAGE,
            2 * PAGE,
            value.checked_next_multiple_of(PAGE).unwrap_or(value) & !(PAGE - 1),
            value / PAGE / 2 * PAGE,
            value.saturating_sub(PAGE),
        ],
        Meaning::Bits(names) => names.iter().map(|(_, bits)| value & !bits).collect(),
        Meaning::Choice(_) => Vec::new(),
        Meaning::Number if value > 1 && value != u64::MAX => vec![1],
        Meaning::Number => Vec::new(),
        Meaning::File if value != u64::MAX && value != 0 => vec![0],
        Meaning::File => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::shrink;
    use crate::{Program, draw};

    /// Fails programs in which anything is mapped by one thread and stored to by another.
    fn fails(programs: &[Program]) -> Result<Vec<bool>, ()> {
        let fails = |program: &Program| {
            let by = |name| program.ops.iter().find(|op| op.kind().name == name);
            by("mmap")
                .zip(by("store"))
                .is_some_and(|(mmap, store)| mmap.actor != store.actor)
        };
        Ok(programs.iter().map(fails).collect())
    }

    #[test]
    fn what_does_not_matter_goes() {
        let mut shrunk = 0;
        for program in (0..300).map(draw::program) {
            if fails(std::slice::from_ref(&program)) == Ok(vec![true]) {
                let small = shrink(&program, fails).expect("it says what fails");
                assert_eq!(fails(std::slice::from_ref(&small)), Ok(vec![true]));
                // The third operation may be a fork that makes the storing process.
                assert!(small.ops.len() <= 3, "{small}");
                shrunk += 1;
            }
        }
        assert!(shrunk > 10);
    }
}
