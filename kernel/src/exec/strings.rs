//! A program's arguments or environment on their way from one address space to another: texts one
//! behind the other, each ended by a NUL byte.

use alloc::vec::Vec;

use crate::arch::uaccess;
use crate::errno::{E2BIG, ENOMEM, Errno};

/// The longest text, its NUL included: Linux's `MAX_ARG_STRLEN`.
const LONGEST: usize = 32 * 4096;
/// All texts and pointers of a program: a quarter of the stack's limit, as on Linux.
pub const MOST: usize = (super::STACK_LIMIT / 4) as usize;

/// Some texts.
#[derive(Default)]
pub struct Strings {
    bytes: Vec<u8>,
    count: usize,
}

impl Strings {
    /// None.
    pub const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            count: 0,
        }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.count
    }

    /// All bytes, each text's NUL included.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What they take on a stack, a pointer to each included.
    pub fn size(&self) -> usize {
        self.bytes.len() + 8 * self.count
    }

    /// The texts, without their NULs.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let bytes = self.bytes.strip_suffix(&[0]).unwrap_or(&[]);
        // No text has a NUL within; none at all is not one empty text.
        bytes
            .split(|&byte| byte == 0)
            .skip(usize::from(self.count == 0))
    }

    /// Adds a text without NULs.
    ///
    /// # Errors
    /// `ENOMEM`; `E2BIG` if it or all are too long.
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

    /// Adds the texts of others, from the one numbered `from` on.
    ///
    /// # Errors
    /// As [`Strings::push`].
    pub fn extend(&mut self, others: &Strings, from: usize) -> Result<(), Errno> {
        others
            .iter()
            .skip(from)
            .try_for_each(|text| self.push(text))
    }

    /// Reads an array of pointers to texts, ended by 0, from user memory.
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

    /// Reads one text, page by page: what lies behind its page may not be there.
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
