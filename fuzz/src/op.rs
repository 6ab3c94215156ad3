//! An operation, who does it, and how.

use std::fmt::Write as _;

use crate::KINDS;
use crate::address::{PAGE, Shown, real, told};
use crate::kind::{Act, Arguments, Kind, Meaning, Shows};
use crate::line::Line;
use crate::memory::{Memory, Signal};

/// Who does something: a thread of a process.
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
    /// Its kind, as a place in [`KINDS`].
    pub kind: u16,
    /// Who does it.
    pub actor: Actor,
    /// It is done side by side with its neighbours that are marked so, too, and that other threads
    /// of the process do.
    pub beside: bool,
    /// Its arguments.
    pub arguments: Arguments,
}

/// What an operation answers that was not done.
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

    /// The same, not to be done.
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

    /// Does it and writes the answer. Not for those that fork.
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

/// Writes what a system call answered.
pub fn show(
    on: &mut dyn Memory,
    shows: Shows,
    arguments: &Arguments,
    result: Result<u64, i32>,
    line: &mut Line,
) {
    let window = on.scene().window(on.heap());
    // A line takes everything.
    let _ = match (result, shows) {
        (Err(errno), _) => write!(line, "errno {errno}"),
        (Ok(number), Shows::Number) => write!(line, "{number}"),
        (Ok(at), Shows::Place { .. }) if (window.start..window.end).contains(&at) => {
            write!(line, "{}", Shown(told(at, on.heap(), on.scene())))
        }
        // It was asked for outright.
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

/// Writes how an access ended that did not succeed.
pub fn show_signal(on: &dyn Memory, signal: Signal, line: &mut Line) {
    let Signal {
        number,
        code,
        address,
    } = signal;
    let address = Shown(told(address, on.heap(), on.scene()));
    let _ = write!(line, "signal {number} code {code} at {address}");
}
