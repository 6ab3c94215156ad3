//! Where output goes: that of programs, and that of this command.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use crate::refusal;

/// A place for a program's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    /// This command's stdout.
    Stdout,
    /// This command's stderr.
    Stderr,
    /// Nowhere.
    Nowhere,
    /// This buffer.
    Kept(&'static Kept),
}

/// Output that is kept until it is taken.
#[derive(Debug, Default)]
pub struct Kept(Mutex<Vec<u8>>);

impl Kept {
    /// No output yet.
    pub const fn new() -> Self {
        Kept(Mutex::new(Vec::new()))
    }

    /// Takes the output so far.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Two are equal if they are the same object.
impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Kept {}

impl Sink {
    /// Passes on a piece of output, unbuffered.
    pub fn write(self, piece: &[u8]) -> io::Result<()> {
        match self {
            Sink::Stdout => write_now(io::stdout().lock(), piece),
            Sink::Stderr => write_now(io::stderr().lock(), piece),
            Sink::Nowhere => Ok(()),
            Sink::Kept(kept) => {
                let mut all = kept.0.lock().unwrap_or_else(PoisonError::into_inner);
                all.extend_from_slice(piece);
                Ok(())
            }
        }
    }
}

/// Prints the output of this command. A reader that closes the pipe early is no error.
pub fn print(text: impl fmt::Display) -> ExitCode {
    match write_now(io::stdout().lock(), text.to_string().as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            refusal::say(&anyhow::Error::from(error).context("cannot write to stdout"))
        }
        _ => ExitCode::SUCCESS,
    }
}

fn write_now(mut to: impl Write, piece: &[u8]) -> io::Result<()> {
    to.write_all(piece)?;
    to.flush()
}
