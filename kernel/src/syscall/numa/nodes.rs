//! Sets of nodes, in user memory.

use crate::arch::uaccess;
use crate::errno::{EFAULT, EINVAL, Errno};

/// The most nodes that Linux knows. A program may name more only if their bits are 0.
const MOST: u64 = 1024;
/// Bits of a word.
const WORD: u64 = 64;
/// The most bits of a set.
const LONGEST: u64 = 4096 * 8;

/// A set of nodes. Only its first word is ever returned, because all nodes that exist are in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Nodes {
    pub first: u64,
    /// Whether it has nodes from number 64 on.
    pub others: bool,
}

impl Nodes {
    pub const NONE: Self = Self {
        first: 0,
        others: false,
    };

    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Whether it has the node that exists.
    pub fn has_own(self) -> bool {
        self.first & 1 != 0
    }

    /// Whether it has nodes that do not exist.
    pub fn has_strange(self) -> bool {
        self.first & !1 != 0 || self.others
    }

    /// Reads a set. As on Linux, `count` is one more than its bits, and a null pointer is the empty set.
    ///
    /// # Errors
    /// `EINVAL`, `EFAULT`.
    pub fn read(at: u64, count: u64) -> Result<Self, Errno> {
        let mut bits = count.wrapping_sub(1);
        if bits == 0 || at == 0 {
            return Ok(Self::NONE);
        }
        if bits > LONGEST {
            return Err(EINVAL);
        }
        let word = |number: u64| uaccess::read::<u64>(at.wrapping_add(8 * number));
        while bits > MOST {
            if word((bits - 1) / WORD)? != 0 {
                return Err(EINVAL);
            }
            bits = (bits - WORD).max(MOST);
        }
        let mut nodes = Self::NONE;
        for number in 0..bits.div_ceil(WORD) {
            let rest = bits - number * WORD;
            let mask = if rest < WORD {
                (1 << rest) - 1
            } else {
                u64::MAX
            };
            match word(number)? & mask {
                first if number == 0 => nodes.first = first,
                other => nodes.others |= other != 0,
            }
        }
        Ok(nodes)
    }
}

/// Writes a set of `count - 1` bits, of which only the first word may be set.
///
/// # Errors
/// `EINVAL`, `EFAULT`.
pub fn write(first: u64, at: u64, count: u64) -> Result<(), Errno> {
    let bits = count.wrapping_sub(1).wrapping_add(WORD - 1) & !(WORD - 1);
    if bits > LONGEST {
        return Err(EINVAL);
    }
    let words = bits / WORD;
    if !uaccess::range_ok(at, 8 * words) {
        return Err(EFAULT);
    }
    for number in (0..words).rev() {
        let word = if number == 0 { first } else { 0 };
        uaccess::write(at + 8 * number, &word)?;
    }
    Ok(())
}
