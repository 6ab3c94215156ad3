//! The only kind of failure: a line for the user, and status 125.

use std::fmt;

/// The exit status of a tool that fails or refuses, as distinct from the program it runs.
pub const STATUS: u8 = 125;

/// Why `./x` stops, in one line that says how to fix it.
#[derive(Debug)]
pub struct Refusal(String);

impl Refusal {
    /// A refusal that says `line`.
    pub fn new(line: impl Into<String>) -> Self {
        Refusal(line.into())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
