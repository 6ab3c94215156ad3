//! Options and numbers as the C programs parse them.

mod getopt;
mod number;

pub use getopt::{Getopt, Item};
pub use number::parse_number;

use std::fmt;

use crate::system::{End, Stop, Thread};

/// The options of a program, and its usage text.
pub struct Syntax {
    /// The letters, as `getopt` takes them: a colon behind one that takes a value.
    pub letters: &'static str,
    /// The long options; none takes a value.
    pub words: &'static [&'static str],
    /// The text of `--help`, for a program of this name.
    pub usage: fn(&str) -> String,
}

impl Syntax {
    /// Parses options one after the other.
    pub fn read<'a>(&self, arguments: &'a [String]) -> Getopt<'a> {
        Getopt::new(arguments, self.letters, self.words)
    }

    /// Prints the usage, and ends the process with status 0.
    pub fn help(&self, thread: &Thread<'_>) -> Stop {
        let process = thread.process();
        process.print((self.usage)(process.name()));
        process.end(End::Exit(0))
    }

    /// Prints the error and the usage on stderr, and ends the process with status 1.
    pub fn refuse(&self, thread: &Thread<'_>, why: impl fmt::Display) -> Stop {
        let process = thread.process();
        let name = process.name();
        let words = format!("{name}: {why}\n{}", (self.usage)(name));
        process.end_with(End::Exit(1), words)
    }

    /// The value of an option that is a number.
    pub fn number(
        &self,
        thread: &Thread<'_>,
        (letter, text): (char, &str),
        suffix: bool,
        (low, high): (u64, u64),
    ) -> Result<u64, Stop> {
        parse_number(text, suffix, low, high).ok_or_else(|| {
            let why = format_args!("-{letter}: not a number from {low} to {high}: {text}");
            self.refuse(thread, why)
        })
    }

    /// Refuses words that are neither options nor values.
    pub fn no_operands(&self, thread: &Thread<'_>, operands: &[&str]) -> Result<(), Stop> {
        operands.first().map_or(Ok(()), |operand| {
            Err(self.refuse(thread, format_args!("unexpected argument: {operand}")))
        })
    }
}
