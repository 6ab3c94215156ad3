//! Splits one channel into the guest's standard output and standard error.
//!
//! One channel keeps the order in which the program wrote, and the bytes of one write together. A piece is the
//! console (one byte), the length (four bytes, the lowest first), and the bytes themselves.

use std::mem;

/// The guest's ports, of which a piece has the low byte.
const OUTPUT: u8 = 0xe9;

const HEADER: usize = 5;

/// One of the two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Output,
    Error,
}

/// The received part of a piece that is not whole yet.
#[derive(Debug, Default)]
pub struct Pieces(Vec<u8>);

impl Pieces {
    /// Reads the next bytes, and passes every piece that is now whole to `take`.
    pub fn feed(&mut self, bytes: &[u8], mut take: impl FnMut(Stream, &[u8])) {
        self.0.extend_from_slice(bytes);
        let mut rest = self.0.as_slice();
        while let Some((stream, length, begun)) = header(rest)
            && let Some((piece, next)) = begun.split_at_checked(length)
        {
            take(stream, piece);
            rest = next;
        }
        let done = self.0.len() - rest.len();
        self.0.drain(..done);
    }

    /// Passes the part of a piece that the guest could not finish to `take`.
    pub fn finish(&mut self, take: impl FnOnce(Stream, &[u8])) {
        if let Some((stream, _, begun)) = header(&mem::take(&mut self.0)) {
            take(stream, begun);
        }
    }
}

/// The stream and the length of the piece that begins here, and the bytes after its header.
fn header(bytes: &[u8]) -> Option<(Stream, usize, &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
    let [console, length @ ..] = *header;
    let stream = match console {
        OUTPUT => Stream::Output,
        _ => Stream::Error,
    };
    Some((stream, u32::from_le_bytes(length) as usize, rest))
}

#[cfg(test)]
mod tests {
    use super::{OUTPUT, Pieces, Stream};

    fn piece(console: u8, text: &str) -> Vec<u8> {
        let mut piece = vec![console];
        piece.extend((text.len() as u32).to_le_bytes());
        piece.extend(text.as_bytes());
        piece
    }

    #[test]
    fn pieces_are_whole_however_they_come() {
        let mut all = piece(OUTPUT, "one");
        all.extend(piece(0xea, "two"));
        all.extend(piece(OUTPUT, ""));
        all.extend(piece(OUTPUT, "three"));
        for size in 1..all.len() {
            let mut pieces = Pieces::default();
            let mut seen = Vec::new();
            for part in all.chunks(size) {
                pieces.feed(part, |stream, text| seen.push((stream, text.to_vec())));
            }
            pieces.finish(|_, _| panic!("nothing is left"));
            let expected = [
                (Stream::Output, b"one".to_vec()),
                (Stream::Error, b"two".to_vec()),
                (Stream::Output, Vec::new()),
                (Stream::Output, b"three".to_vec()),
            ];
            assert_eq!(seen, expected, "in parts of {size}");
        }
    }

    #[test]
    fn what_was_cut_off_is_shown() {
        let mut pieces = Pieces::default();
        let all = piece(0xea, "cut off");
        pieces.feed(&all[..8], |_, _| panic!("it is not whole"));
        let mut left = None;
        pieces.finish(|stream, text| left = Some((stream, text.to_vec())));
        assert_eq!(left, Some((Stream::Error, b"cut".to_vec())));
    }
}
