//! A program's arguments or environment in transit between address spaces: consecutive strings, each ended by
//! a NUL byte.

use alloc::vec::Vec;

use crate::arch::uaccess;
use crate::errno::{E2BIG, ENOMEM, Errno};

/// The longest string, its NUL included: Linux's `MAX_ARG_STRLEN`.
const LONGEST: usize = 32 * 4096;
/// The limit on all strings and pointers of a program: a quarter of the stack limit, as on Linux.
pub const MOST: usize = (super::STACK_LIMIT / 4) as usize;

/// A list of strings.
#[derive(Default)]
pub struct Strings {
    bytes: Vec<u8>,
    count: usize,
}

impl Strings {
    /// Returns an empty list.
    pub const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            count: 0,
        }
    }

    /// The number of strings.
    pub fn len(&self) -> usize {
        self.count
    }

    /// All bytes, each string's NUL included.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes that the strings take on a stack, including a pointer to each.
    pub fn size(&self) -> usize {
        self.bytes.len() + 8 * self.count
    }

    /// The strings, without their NULs.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let bytes = self.bytes.strip_suffix(&[0]).unwrap_or(&[]);
        // No string contains a NUL. An empty list must not yield one empty string.
        bytes
            .split(|&byte| byte == 0)
            .skip(usize::from(self.count == 0))
    }

    /// Adds a string without NULs.
    ///
    /// # Errors
    /// `ENOMEM`; `E2BIG` if the string or the total is too long.
    pub fn push(&mut self, text: &[u8]) -> Result<(), Errno> {
        if text.len() >= LONGEST || self.size() + text.len() + 9 > MOST {
            return Err(E2BIG);
        }
        self.bytes.try_reserve(text.len() + 1).map_err(|_| ENOMEM)?;
        self.bytes.extend_from_slice(text);
        self.bytes.push(0);
        self.count += 1;
        Ok(())
    }

    /// Appends the strings of `others`, beginning with number `from`.
    ///
    /// # Errors
    /// As [`Strings::push`].
    pub fn extend(&mut self, others: &Strings, from: usize) -> Result<(), Errno> {
        others
            .iter()
            .skip(from)
            .try_for_each(|text| self.push(text))
    }

    /// Reads a null-terminated array of string pointers from user memory.
    ///
    /// # Errors
    /// `EFAULT`, and as [`Strings::push`].
    pub fn read(array: u64) -> Result<Self, Errno> {
        let mut strings = Self::new();
        if array == 0 {
            return Ok(strings);
        }
        for at in 0.. {
            let text: u64 = uaccess::read(array.wrapping_add(8 * at))?;
            if text == 0 {
                break;
            }
            strings.read_text(text)?;
        }
        Ok(strings)
    }

    /// Reads one string in aligned pieces, so that no read crosses into a page that may not be mapped.
    fn read_text(&mut self, mut from: u64) -> Result<(), Errno> {
        let start = self.bytes.len();
        loop {
            let mut piece = [0; 256];
            let size = (256 - from % 256) as usize;
            uaccess::read_bytes(from, &mut piece[..size])?;
            let end = piece[..size].iter().position(|&byte| byte == 0);
            let text = &piece[..end.unwrap_or(size)];
            self.bytes.try_reserve(text.len() + 1).map_err(|_| ENOMEM)?;
            self.bytes.extend_from_slice(text);
            if self.bytes.len() - start >= LONGEST || self.size() + 9 > MOST {
                return Err(E2BIG);
            }
            if end.is_some() {
                self.bytes.push(0);
                self.count += 1;
                return Ok(());
            }
            from += size as u64;
        }
    }
}
