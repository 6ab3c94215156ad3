//! Reads programs from a file, a piece at a time: every fork would have to copy what the executor has
//! in memory.

use std::fs::File;
use std::io::{self, Read as _};

use crate::program::Program;
use crate::wire::decode;

/// More than the longest program.
const PIECE: usize = 32 << 10;

/// A file of programs.
pub struct Input {
    file: File,
    bytes: Vec<u8>,
    start: usize,
    is_over: bool,
}

impl Input {
    pub fn open(path: &str) -> io::Result<Self> {
        Ok(Input {
            file: File::open(path)?,
            bytes: Vec::with_capacity(2 * PIECE),
            start: 0,
            is_over: false,
        })
    }

    /// Reads the next program; `false` at the end.
    pub fn next(&mut self, program: &mut Program) -> io::Result<bool> {
        if self.bytes.len() - self.start < PIECE && !self.is_over {
            self.fill()?;
        }
        let mut rest = &self.bytes[self.start..];
        if rest.is_empty() {
            return Ok(false);
        }
        let before = rest.len();
        decode(&mut rest, program).ok_or_else(|| io::Error::other("a program cannot be read"))?;
        self.start += before - rest.len();
        Ok(true)
    }

    fn fill(&mut self) -> io::Result<()> {
        self.bytes.drain(..self.start);
        self.start = 0;
        let mut length = self.bytes.len();
        self.bytes.resize(2 * PIECE, 0);
        while length < self.bytes.len() {
            match self.file.read(&mut self.bytes[length..])? {
                0 => {
                    self.is_over = true;
                    break;
                }
                count => length += count,
            }
        }
        self.bytes.truncate(length);
        Ok(())
    }
}
