//! Check values of stored bytes, and pages that repeat one word.

use crate::device::Page;

/// Odd constants with bits all over, from the fractional part of the golden ratio and of the root of 2.
const LEFT: u64 = 0x9e37_79b9_7f4a_7c15;
const RIGHT: u64 = 0x6a09_e667_f3bc_c909;

/// Returns the check value of some bytes: one multiplication of 64 by 64 bits for each 16 bytes. It finds
/// accidents, and is no protection against intent.
pub(super) fn of(bytes: &[u8]) -> u64 {
    let (pairs, rest) = bytes.as_chunks::<16>();
    let mut value = RIGHT ^ bytes.len() as u64;
    for pair in pairs {
        value = fold(value, u128::from_le_bytes(*pair));
    }
    let mut last = [0; 16];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    fold(value, u128::from_le_bytes(last))
}

/// Mixes 16 bytes into a value: the product's upper half, added to the lower one.
#[inline]
fn fold(value: u64, pair: u128) -> u64 {
    let (low, high) = (pair as u64, (pair >> 64) as u64);
    let product = u128::from(low ^ LEFT ^ value) * u128::from(high ^ RIGHT ^ value.rotate_left(32));
    product as u64 ^ (product >> 64) as u64
}

/// Returns the word that a page repeats, if it repeats one.
pub(super) fn repeated_word(page: &Page) -> Option<u64> {
    let (words, _) = page.as_chunks::<8>();
    let first = words.first()?;
    let is_repeated = words.iter().all(|word| word == first);
    is_repeated.then(|| u64::from_le_bytes(*first))
}

/// Fills a page with a word.
pub(super) fn repeat_word(word: u64, page: &mut Page) {
    page.as_chunks_mut::<8>().0.fill(word.to_le_bytes());
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn every_flipped_bit_changes_the_value() {
        let mut bytes: std::vec::Vec<u8> = (0..257).map(|at| (at * at) as u8).collect();
        for length in [0, 1, 15, 16, 17, 257] {
            let before = of(&bytes[..length]);
            for bit in 0..8 * length {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(of(&bytes[..length]), before, "bit {bit} of {length} bytes");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn bytes_that_are_missing_change_the_value() {
        assert_ne!(of(&[0; 16]), of(&[0; 17]));
        assert_ne!(of(&[]), of(&[0]));
    }

    #[test]
    fn a_page_of_one_word_is_found() {
        let mut page: Page = [0; 4096];
        assert_eq!(repeated_word(&page), Some(0));
        repeat_word(0x0123_4567_89ab_cdef, &mut page);
        assert_eq!(repeated_word(&page), Some(0x0123_4567_89ab_cdef));
        page[4095] ^= 1;
        assert_eq!(repeated_word(&page), None);
    }
}
