//! An operation, its actor, and its execution.

use std::fmt::Write as _;

use crate::KINDS;
use crate::address::{PAGE, Shown, real, told};
use crate::kind::{Act, Arguments, Kind, Meaning, Shows};
use crate::line::Line;
use crate::memory::{Memory, Signal};

/// The actor of an operation: a thread of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Actor {
    /// The process; 0 is the first.
    pub process: u8,
    /// The thread; a process begins with its thread 0.
    pub thread: u8,
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// Its kind, as an index into [`KINDS`].
    pub kind: u16,
    /// Its actor.
    pub actor: Actor,
    /// Whether it runs side by side with neighbours that are marked as well and belong to other
    /// threads of the process.
    pub beside: bool,
    /// Its arguments.
    pub arguments: Arguments,
}

/// The answer of an operation that was left out.
pub const LEFT_OUT: &str = "left out";

impl Op {
    /// Its kind.
    pub fn kind(&self) -> &'static Kind {
        KINDS[usize::from(self.kind)]
    }

    /// The process that it makes.
    pub fn forks(&self) -> Option<u8> {
        matches!(self.kind().act, Act::Fork).then_some(self.arguments[0] as u8)
    }

    /// The same operation, left out.
    pub fn left_out(self) -> Op {
        let kind = KINDS
            .iter()
            .position(|kind| matches!(kind.act, Act::Nothing));
        Op {
            kind: kind.unwrap_or_default() as u16,
            arguments: [0; 6],
            ..self
        }
    }

    /// Executes it and writes the answer. Not for forks.
    pub fn run(&self, on: &mut dyn Memory, line: &mut Line) {
        let kind = self.kind();
        let mut arguments = self.arguments;
        for (value, argument) in arguments.iter_mut().zip(kind.arguments) {
            match argument.meaning {
                Meaning::Address => *value = real(*value, on.heap()),
                Meaning::File => *value = on.file(*value),
                _ => {}
            }
        }
        match kind.act {
            Act::Call { shows, .. } => {
                let result = on.call(&kind.act, &arguments);
                show(on, shows, &arguments, result, line);
            }
            Act::Own(run) => run(on, &arguments, line),
            Act::Fork | Act::Nothing => {
                let _ = line.write_str(LEFT_OUT);
            }
        }
    }
}

/// Writes the result of a system call.
pub fn show(
    on: &mut dyn Memory,
    shows: Shows,
    arguments: &Arguments,
    result: Result<u64, i32>,
    line: &mut Line,
) {
    let window = on.scene().window(on.heap());
    // Writing to a line does not fail.
    let _ = match (result, shows) {
        (Err(errno), _) => write!(line, "errno {errno}"),
        (Ok(number), Shows::Number) => write!(line, "{number}"),
        (Ok(at), Shows::Place { .. }) if (window.start..window.end).contains(&at) => {
            write!(line, "{}", Shown(told(at, on.heap(), on.scene())))
        }
        // The program asked for this address.
        (Ok(at), Shows::Place { .. }) if at != 0 && at == arguments[0] => {
            write!(line, "{}", Shown(told(at, on.heap(), on.scene())))
        }
        (Ok(at), Shows::Place { length }) => {
            let length = arguments[length].next_multiple_of(PAGE);
            match on.unmap(at, length) {
                Ok(()) => write!(line, "elsewhere"),
                Err(errno) => write!(line, "elsewhere, for ever: {errno}"),
            }
        }
    };
}

/// Writes the signal of a failed access.
pub fn show_signal(on: &dyn Memory, signal: Signal, line: &mut Line) {
    let Signal {
        number,
        code,
        address,
    } = signal;
    let address = Shown(told(address, on.heap(), on.scene()));
    let _ = write!(line, "signal {number} code {code} at {address}");
}
