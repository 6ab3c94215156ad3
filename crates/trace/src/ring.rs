//! A ring buffer of one CPU's events: the CPU writes it, and readers may read it concurrently.
//!
//! The memory is an array of words. The first word is the number of events ever written. After [`HEADER`]
//! words, slots of [`WORDS`] words follow: event `n` is in slot `n % capacity`. The oldest events are
//! overwritten. A reader outside this program, such as a hypervisor that reads the guest's memory, needs only
//! this:
//!
//! 1. Read the number, and copy the slots of the events that it has not seen.
//! 2. Read the number again, as `later`. The copy of event `n` is whole if `n + capacity > later`; else the
//!    event is lost.
//!
//! This holds because the writer publishes `n` before it overwrites slot `n % capacity`, and the reader reads
//! the number after the copy. Each side fences between its two steps.
//!
//! *Writes*: the ring's lines, by its CPU only. A reader occasionally pulls them into its own cache.

use core::ops::Range;
use core::sync::atomic::{Ordering, fence};

use faultless_sync::atomic::Local;

use crate::event::{Event, WORDS};

/// Words before the first slot, which have cache lines of their own.
pub const HEADER: usize = 16;

/// A ring over words of memory.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    words: &'static [Local],
}

impl Ring {
    /// Returns a ring over `words`, which may be too few for any event.
    pub fn new(words: &'static [Local]) -> Self {
        Self { words }
    }

    /// Returns the number of events that fit.
    pub fn capacity(&self) -> u64 {
        (self.words.len().saturating_sub(HEADER) / WORDS) as u64
    }

    /// Returns the number of events ever written.
    pub fn written(&self) -> u64 {
        let written = self.words.first().map_or(0, Local::get);
        // Pairs with the fence before the number is set: slots are read after it.
        fence(Ordering::Acquire);
        written
    }

    /// Writes an event, on the ring's CPU.
    pub(crate) fn put(&self, event: Event) {
        let capacity = self.capacity();
        if capacity == 0 {
            return;
        }
        let number = self.words[0].get();
        let at = HEADER + (number % capacity) as usize * WORDS;
        // The number was published before the slot changes; pairs with the fence in `collect`.
        fence(Ordering::Release);
        for (word, value) in self.words[at..at + WORDS].iter().zip(event.to_words()) {
            word.set(value);
        }
        // The slot changes before the number is published; pairs with the fence in `written`.
        fence(Ordering::Release);
        self.words[0].set(number + 1);
    }

    /// Calls `each` with the number and the content of each event from number `from` that is not overwritten,
    /// oldest first. The other events are lost. Returns the number to continue from.
    pub fn collect(&self, from: u64, mut each: impl FnMut(u64, Event)) -> u64 {
        let capacity = self.capacity();
        let written = self.written();
        let first = from.max(written.saturating_sub(capacity));
        for number in first..written {
            let at = HEADER + (number % capacity) as usize * WORDS;
            let mut words = [0; WORDS];
            for (word, place) in words.iter_mut().zip(&self.words[at..at + WORDS]) {
                *word = place.get();
            }
            fence(Ordering::Acquire);
            let later = self.words[0].get();
            if number + capacity > later
                && let Some(event) = Event::from_words(words)
            {
                each(number, event);
            }
        }
        written.max(from)
    }

    /// Returns the events of `numbers` that were whole when they were copied, if `later` was the number of
    /// events after the copy. For readers outside this program.
    pub fn whole(numbers: Range<u64>, later: u64, capacity: u64) -> Range<u64> {
        let first = (later + 1).saturating_sub(capacity);
        numbers.start.max(first).min(numbers.end)..numbers.end
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::boxed::Box;
    use std::vec::Vec;

    use super::{HEADER, Local, Ring};
    use crate::event::{Event, WORDS};
    use crate::kind::Kind;

    fn ring(capacity: usize) -> Ring {
        let words: Vec<Local> = (0..HEADER + capacity * WORDS)
            .map(|_| Local::new(0))
            .collect();
        Ring::new(Box::leak(words.into_boxed_slice()))
    }

    fn event(number: u64) -> Event {
        Event::slice(Kind::Mmap, number, number + 1, number, number)
            .with(number as u8, number as u8)
    }

    #[test]
    fn what_is_written_is_read_once_and_in_order() {
        let ring = ring(8);
        let mut seen = Vec::new();
        let mut from = 0;
        for round in 0..5 {
            (round * 3..round * 3 + 3).for_each(|n| ring.put(event(n)));
            from = ring.collect(from, |_, event| seen.push(event));
            assert_eq!(from, round * 3 + 3);
        }
        assert_eq!(seen, (0..15).map(event).collect::<Vec<_>>());
    }

    #[test]
    fn the_newest_are_kept() {
        let ring = ring(4);
        (0..10).for_each(|n| ring.put(event(n)));
        let mut seen = Vec::new();
        // The slot that is written next is not trusted.
        assert_eq!(
            ring.collect(0, |number, event| seen.push((number, event))),
            10
        );
        assert_eq!(seen, [7, 8, 9].map(|number| (number, event(number))));
    }

    #[test]
    fn without_room_nothing_is_kept() {
        for words in [0, 1, HEADER + WORDS - 1] {
            let words: Vec<Local> = (0..words).map(|_| Local::new(0)).collect();
            let ring = Ring::new(Box::leak(words.into_boxed_slice()));
            ring.put(event(1));
            assert_eq!(ring.collect(0, |_, _| panic!("no event fits")), 0);
        }
    }

    #[test]
    fn readers_outside_know_what_is_whole() {
        assert_eq!(Ring::whole(0..10, 10, 100), 0..10);
        assert_eq!(Ring::whole(0..4, 6, 4), 3..4);
        assert_eq!(Ring::whole(0..4, 60, 4), 4..4);
    }

    #[test]
    fn a_reader_beside_the_writer_sees_whole_events_only() {
        const COUNT: u64 = 200_000;
        let ring = ring(64);
        std::thread::scope(|scope| {
            scope.spawn(move || (0..COUNT).for_each(|n| ring.put(event(n))));
            let mut from = 0;
            while from < COUNT {
                from = ring.collect(from, |number, found| assert_eq!(found, event(number)));
            }
        });
    }
}
