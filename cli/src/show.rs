//! Where output goes: that of programs, and what was asked for.

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
    /// It is kept.
    Kept(&'static Kept),
}

/// Output that is kept until somebody takes it.
#[derive(Debug, Default)]
pub struct Kept(Mutex<Vec<u8>>);

impl Kept {
    /// Nothing yet.
    pub const fn new() -> Self {
        Kept(Mutex::new(Vec::new()))
    }

    /// Takes what there is.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Two are equal if they are one.
impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Kept {}

impl Sink {
    /// Passes on a piece of output at once.
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

/// Prints what was asked for. Whoever reads it may go when they have seen enough.
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
