//! A line of a record in memory of its own: nothing may be allocated where programs run.

use std::fmt;

/// Bytes of a line; the rest is summed up in a hash.
const MOST: usize = 248;

/// One line.
#[derive(Clone, Copy)]
pub struct Line {
    length: u16,
    /// A hash of the text that did not fit, or 0.
    rest: u32,
    bytes: [u8; MOST],
}

impl Line {
    /// Returns an empty line.
    pub const fn new() -> Self {
        Line {
            length: 0,
            rest: 0,
            bytes: [0; MOST],
        }
    }

    /// Empties it.
    pub fn clear(&mut self) {
        (self.length, self.rest) = (0, 0);
    }

    /// The text that fits.
    pub fn text(&self) -> &str {
        let bytes = &self.bytes[..usize::from(self.length)];
        // Only whole ASCII characters were written.
        std::str::from_utf8(bytes).unwrap_or("?")
    }

    /// A hash of the text that did not fit, if there is any.
    pub fn rest(&self) -> Option<u32> {
        (self.rest != 0).then_some(self.rest)
    }

    /// Writes runs of equal values: `1*3 0*200`.
    pub fn runs(&mut self, values: impl Iterator<Item = u8>) {
        let mut run: Option<(u8, u64)> = None;
        for value in values {
            match &mut run {
                Some((same, count)) if *same == value => *count += 1,
                _ => {
                    self.end_run(run);
                    run = Some((value, 1));
                }
            }
        }
        self.end_run(run);
    }

    fn end_run(&mut self, run: Option<(u8, u64)>) {
        if let Some((value, count)) = run {
            let gap = if self.length == 0 { "" } else { " " };
            let _ = fmt::Write::write_fmt(self, format_args!("{gap}{value}*{count}"));
        }
    }
}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            let length = usize::from(self.length);
            if length < MOST && byte.is_ascii() {
                self.bytes[length] = byte;
                self.length += 1;
            } else {
                // FNV-1a, never 0.
                self.rest = ((self.rest ^ u32::from(byte)) | 1 << 31).wrapping_mul(0x0100_0193);
                self.rest |= 1;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, MOST};
    use std::fmt::Write as _;

    #[test]
    fn runs_are_counted() {
        let mut line = Line::new();
        line.runs([1, 1, 0, 0, 0, 1].into_iter());
        assert_eq!(line.text(), "1*2 0*3 1*1");
        line.clear();
        line.runs(std::iter::empty());
        assert_eq!((line.text(), line.rest()), ("", None));
    }

    #[test]
    fn what_is_too_long_is_not_forgotten() {
        let long = |last: char| {
            let mut line = Line::new();
            let _ = write!(line, "{}{last}", "x".repeat(MOST + 100));
            line.rest()
        };
        assert!(long('a').is_some());
        assert_ne!(long('a'), long('b'));
    }
}
