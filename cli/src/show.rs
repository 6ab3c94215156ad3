//! Where the output of programs goes.

use std::io::{self, Write};

/// A place for a program's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    /// This command's stdout.
    Stdout,
    /// This command's stderr.
    Stderr,
    /// Nowhere.
    Nowhere,
}

impl Sink {
    /// Passes on a piece of output at once.
    pub fn write(self, piece: &[u8]) -> io::Result<()> {
        match self {
            Sink::Stdout => write_now(io::stdout().lock(), piece),
            Sink::Stderr => write_now(io::stderr().lock(), piece),
            Sink::Nowhere => Ok(()),
        }
    }
}

fn write_now(mut to: impl Write, piece: &[u8]) -> io::Result<()> {
    to.write_all(piece)?;
    to.flush()
}
