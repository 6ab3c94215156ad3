//! Numbers of address spaces: small, and unique as long as the space lives. They make a user address unique
//! among all processes (`futex`).

use crate::errno::{EAGAIN, Errno};
use crate::memory::USER_END;
use crate::sync::SpinLock;

/// Bits of a number: what a user address without its last two bits leaves free below the sign.
const BITS: u32 = 63 - (USER_END >> 2).next_power_of_two().ilog2();
const WORDS: usize = (1 << BITS) / 64;

struct Taken {
    /// A bit for each number.
    words: [u64; WORDS],
    /// Where to look first.
    next: usize,
}

static TAKEN: SpinLock<Taken> = SpinLock::new(Taken {
    words: [0; WORDS],
    next: 0,
});

/// A number, freed when it is dropped.
pub struct Number(u32);

impl Number {
    /// Takes a free number.
    ///
    /// # Errors
    /// `EAGAIN`: there is none.
    pub fn take() -> Result<Self, Errno> {
        let mut taken = TAKEN.lock();
        let at = (0..WORDS)
            .map(|step| (taken.next + step) % WORDS)
            .find(|&at| taken.words[at] != u64::MAX)
            .ok_or(EAGAIN)?;
        taken.next = at;
        let bit = taken.words[at].trailing_ones();
        taken.words[at] |= 1 << bit;
        Ok(Self(at as u32 * 64 + bit))
    }

    /// Returns the number itself, which is small.
    pub fn index(&self) -> usize {
        self.0 as usize
    }

    /// Returns a key for the table of sleepers: never a kernel address, or a key of another space. Addresses
    /// that differ only in their last two bits have the same key.
    pub fn key(&self, address: u64) -> u64 {
        u64::from(self.0) << (63 - BITS) | address >> 2
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        let mut taken = TAKEN.lock();
        taken.words[self.0 as usize / 64] &= !(1 << (self.0 % 64));
    }
}
