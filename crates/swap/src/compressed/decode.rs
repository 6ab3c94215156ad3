//! Decodes a page from LZ4's block format.
//!
//! Most pages of programs are zero for the most part. In LZ4 such a part is one long match that overlaps its own
//! output. `lz4_flex` copies such a match byte by byte, in 36,000 instructions for a page. Here each copy doubles what
//! the next one can use. The format is described in LZ4's `lz4_Block_format.md`.
//!
//! The input need not be well-formed: every length and offset is checked.

use crate::device::Page;

/// The shortest match.
const MATCH: usize = 4;
/// A length in a token that more bytes follow.
const MORE: usize = 15;

/// The rest of the input.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    #[inline]
    fn byte(&mut self) -> Option<usize> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte.into())
    }

    #[inline]
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Returns a length that begins in a token.
    #[inline]
    fn length(&mut self, in_token: usize) -> Option<usize> {
        let mut length = in_token;
        if in_token == MORE {
            loop {
                let more = self.byte()?;
                length = length.checked_add(more)?;
                if more != 255 {
                    break;
                }
            }
        }
        Some(length)
    }
}

/// Fills `page` from a block. `None` if the block is malformed, or is not that of a whole page.
pub(super) fn decode(block: &[u8], page: &mut Page) -> Option<()> {
    let (mut input, mut at) = (Input(block), 0);
    loop {
        let token = input.byte()?;
        let count = input.length(token >> 4)?;
        let literals = input.bytes(count)?;
        page.get_mut(at..)?
            .get_mut(..count)?
            .copy_from_slice(literals);
        at += count;
        if input.0.is_empty() {
            // The last sequence has no match.
            return (at == page.len()).then_some(());
        }
        let offset = input.byte()? | input.byte()? << 8;
        let length = input.length(token & MORE)?.checked_add(MATCH)?;
        let start = at.checked_sub(offset).filter(|_| offset != 0)?;
        let end = at.checked_add(length).filter(|&end| end <= page.len())?;
        repeat(page, start, at, end);
        at = end;
    }
}

/// Fills `at..end` with what is in `start..at`, over and over.
#[inline]
fn repeat(page: &mut Page, start: usize, at: usize, end: usize) {
    let mut to = at;
    while to < end {
        let count = (to - start).min(end - to);
        page.copy_within(start..start + count, to);
        to += count;
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    extern crate std;

    use std::boxed::Box;
    use std::vec;
    use std::vec::Vec;

    use lz4_flex::block::{compress_into, get_maximum_output_size};
    use proptest::collection;
    use proptest::prelude::*;

    use super::decode;
    use crate::device::Page;

    const SIZE: usize = size_of::<Page>();

    fn block(page: &Page) -> Vec<u8> {
        let mut block = vec![0; get_maximum_output_size(SIZE)];
        let length = compress_into(page, &mut block).unwrap();
        block.truncate(length);
        block
    }

    /// A page of pieces that repeat with some period.
    fn pages() -> impl Strategy<Value = Box<Page>> {
        let piece = (1..64usize, collection::vec(any::<u8>(), 1..40));
        collection::vec(piece, 1..200).prop_map(|pieces| {
            let mut page = Box::new([0; SIZE]);
            let bytes = pieces
                .iter()
                .cycle()
                .flat_map(|(times, piece)| piece.repeat(*times));
            page.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
            page
        })
    }

    proptest! {
        #[test]
        fn what_was_compressed_comes_back(page in pages()) {
            let mut found = Box::new([1; SIZE]);
            prop_assert_eq!(decode(&block(&page), &mut found), Some(()));
            prop_assert_eq!(found, page);
        }

        #[test]
        fn it_agrees_with_another_decoder(bytes in collection::vec(any::<u8>(), 0..300)) {
            let (mut ours, mut theirs) = (Box::new([0; SIZE]), Box::new([0; SIZE]));
            let other = lz4_flex::block::decompress_into(&bytes, &mut *theirs);
            let is_whole = other.is_ok_and(|length| length == SIZE);
            if decode(&bytes, &mut ours).is_some() {
                prop_assert!(is_whole);
                prop_assert_eq!(ours, theirs);
            }
        }

        #[test]
        fn damage_never_panics(page in pages(), at in any::<prop::sample::Index>(), bit in 0..8u32) {
            let mut block = block(&page);
            let at = at.index(block.len());
            block[at] ^= 1 << bit;
            let _ = decode(&block, &mut Box::new([0; SIZE]));
        }
    }

    #[test]
    fn a_truncated_block_is_refused() {
        let mut page = [0; SIZE];
        page[..9].copy_from_slice(b"faultless");
        let block = block(&page);
        for length in 0..block.len() {
            assert_eq!(decode(&block[..length], &mut [0; SIZE]), None, "{length}");
        }
    }
}
