//! The executor's output.

use std::io::{self, Write as _};

use super::Mode;

/// Hashes that are printed together. If the kernel dies, as many are lost.
const TOGETHER: u32 = 64;

/// Begins the line with the number of pages that came back from a swap device.
pub const SWAPPED_IN: &str = "swapped in ";

/// Standard output.
pub struct Output {
    mode: Mode,
    /// Text to be printed, which never outgrows its capacity.
    text: Vec<u8>,
    waiting: u32,
    hash: u64,
}

impl Output {
    pub fn new(mode: Mode) -> Self {
        Output {
            mode,
            text: Vec::with_capacity(16 << 10),
            waiting: 0,
            hash: SEED,
        }
    }

    /// Adds a piece of a program's record.
    pub fn piece(&mut self, piece: &[u8]) -> io::Result<()> {
        match self.mode {
            Mode::Digest => self.hash = hash(self.hash, piece),
            Mode::Detail => io::stdout().write_all(piece)?,
        }
        Ok(())
    }

    /// Ends a program's record with its status: 0, or what went wrong.
    pub fn end(&mut self, status: i32) -> io::Result<()> {
        match self.mode {
            Mode::Digest => {
                let digest = hash(self.hash, &status.to_le_bytes());
                writeln!(self.text, "{digest:016x}")?;
                self.hash = SEED;
                self.waiting += 1;
                if self.waiting == TOGETHER {
                    self.flush()?;
                }
                Ok(())
            }
            Mode::Detail => {
                let mut out = io::stdout();
                writeln!(out, "end {status}")?;
                out.flush()
            }
        }
    }

    /// Ends the output. `swapped_in` is the number of pages that came back from a swap device, if that is known.
    pub fn finish(&mut self, swapped_in: Option<u64>) -> io::Result<()> {
        self.flush()?;
        if let Some(count) = swapped_in {
            writeln!(io::stdout(), "{SWAPPED_IN}{count}")?;
        }
        io::stdout().write_all(b"that is all\n")?;
        io::stdout().flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.waiting = 0;
        io::stdout().write_all(&self.text)?;
        self.text.clear();
        io::stdout().flush()
    }
}

/// The hash of a whole record.
pub fn hash_of(text: &[u8], status: i32) -> u64 {
    hash(hash(SEED, text), &status.to_le_bytes())
}

/// The initial value of a hash.
const SEED: u64 = 0xcbf2_9ce4_8422_2325;

/// Continues a hash over more bytes: FNV-1a.
fn hash(mut hash: u64, bytes: &[u8]) -> u64 {
    for &byte in bytes {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash
}
