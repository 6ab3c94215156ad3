//! Keeps the end of a machine's output, to explain a failure.

/// Bytes that are kept at least; at most twice as many.
const MOST: usize = 16 << 10;

/// The last bytes of some output.
#[derive(Debug, Default)]
pub struct Tail(Vec<u8>);

impl Tail {
    /// Reads the next piece.
    pub fn feed(&mut self, piece: &[u8]) {
        self.0.extend_from_slice(piece);
        if self.0.len() > 2 * MOST {
            self.0.drain(..self.0.len() - MOST);
        }
    }

    /// What is kept of it.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The last line that is not empty.
    pub fn last_line(&self) -> Option<String> {
        self.last_lines(1).pop()
    }

    /// The last `count` lines that are not empty, in their order.
    pub fn last_lines(&self, count: usize) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.0);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let mut last: Vec<String> = lines.rev().take(count).map(str::to_owned).collect();
        last.reverse();
        last
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Tail};

    #[test]
    fn the_last_line_may_come_in_pieces() {
        let mut tail = Tail::default();
        assert_eq!(tail.last_line(), None);
        for piece in ["one\ntw", "o\r\n", "\n"] {
            tail.feed(piece.as_bytes());
        }
        assert_eq!(tail.last_line().as_deref(), Some("two"));
        assert_eq!(tail.last_lines(3), ["one", "two"]);
    }

    #[test]
    fn old_output_is_forgotten() {
        let mut tail = Tail::default();
        for _ in 0..100 {
            tail.feed(&[b'x'; 1000]);
        }
        assert!(tail.0.len() <= 2 * MOST);
    }
}
