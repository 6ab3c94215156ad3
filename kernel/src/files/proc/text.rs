//! A text under construction, in memory that is allocated fallibly.

use alloc::vec::Vec;
use core::fmt::{self, Write};

use crate::errno::{ENOMEM, Errno};

/// The text.
pub struct Text(Vec<u8>);

impl Text {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Makes an empty text that reuses the memory of an old one.
    pub fn on(mut old: Vec<u8>) -> Self {
        old.clear();
        Self(old)
    }

    /// Adds a formatted piece.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn add(&mut self, piece: fmt::Arguments<'_>) -> Result<(), Errno> {
        self.write_fmt(piece).map_err(|_| ENOMEM)
    }

    /// Adds a formatted line.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn line(&mut self, line: fmt::Arguments<'_>) -> Result<(), Errno> {
        self.add(line)?;
        self.bytes(b"\n")
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        self.0.try_reserve(bytes.len()).map_err(|_| ENOMEM)?;
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes()).map_err(|_| fmt::Error)
    }
}
