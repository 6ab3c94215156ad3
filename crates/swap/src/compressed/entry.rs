//! What a slot holds, in two words.
//!
//! | bits of the first word | content |
//! | --- | --- |
//! | 0..2 | 0 empty, 1 a repeated word, 2 an object, 3 a frame |
//! | 2..14 | the object's length |
//! | 14..20 | the object's number in its group |
//! | 20..64 | the frame: of the group's header, or with the page |
//!
//! The second word is the repeated word, or the check value.
//!
//! *Writes*: its words, by operations on the slot, which the device's caller orders. So plain loads and stores
//! are enough.

use faultless_paging::Frame;
use faultless_sync::atomic::Local;

use super::group::Place;
use crate::array::Zeroed;

const WORD: u64 = 1;
const OBJECT: u64 = 2;
const PLAIN: u64 = 3;
const KIND: u64 = 3;

const LENGTH_SHIFT: u32 = 2;
const LENGTH: u64 = 0xfff;
const NUMBER_SHIFT: u32 = 14;
const NUMBER: u64 = 0x3f;
const FRAME_SHIFT: u32 = 20;

/// The content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// Nothing.
    Empty,
    /// A page that repeats this word.
    Word(u64),
    /// A compressed page.
    Object {
        /// Its place.
        place: Place,
        /// The compressed bytes, less than 4,096.
        length: usize,
        /// The check value of the compressed bytes.
        check: u64,
    },
    /// A page as it is.
    Plain {
        /// Its frame.
        frame: Frame,
        /// The check value of the page.
        check: u64,
    },
}

/// A slot's entry.
#[derive(Default)]
#[repr(C)]
pub(super) struct Entry {
    first: Local,
    second: Local,
}

// SAFETY: two words, of which zero is a value, and 16 divides a page's size.
unsafe impl Zeroed for Entry {}

impl Entry {
    pub(super) fn get(&self) -> Stored {
        let (first, second) = (self.first.get(), self.second.get());
        let frame = Frame(first >> FRAME_SHIFT);
        match first & KIND {
            WORD => Stored::Word(second),
            OBJECT => Stored::Object {
                place: Place {
                    group: frame,
                    number: (first >> NUMBER_SHIFT & NUMBER) as u32,
                },
                length: (first >> LENGTH_SHIFT & LENGTH) as usize,
                check: second,
            },
            PLAIN => Stored::Plain {
                frame,
                check: second,
            },
            _ => Stored::Empty,
        }
    }

    pub(super) fn set(&self, stored: Stored) {
        let (first, second) = match stored {
            Stored::Empty => (0, 0),
            Stored::Word(word) => (WORD, word),
            Stored::Object {
                place,
                length,
                check,
            } => {
                let number = u64::from(place.number) << NUMBER_SHIFT;
                let length = (length as u64) << LENGTH_SHIFT;
                (
                    OBJECT | length | number | place.group.0 << FRAME_SHIFT,
                    check,
                )
            }
            Stored::Plain { frame, check } => (PLAIN | frame.0 << FRAME_SHIFT, check),
        };
        self.first.set(first);
        self.second.set(second);
    }

    /// Makes the slot empty, and returns what it held.
    pub(super) fn take(&self) -> Stored {
        let stored = self.get();
        self.first.set(0);
        stored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_comes_back() {
        let frame = Frame((1 << 40) - 1);
        let place = Place {
            group: frame,
            number: 63,
        };
        let check = u64::MAX;
        let entry = Entry::default();
        for stored in [
            Stored::Empty,
            Stored::Word(0),
            Stored::Word(u64::MAX),
            Stored::Object {
                place,
                length: 4095,
                check,
            },
            Stored::Plain { frame, check },
        ] {
            entry.set(stored);
            assert_eq!(entry.get(), stored);
            assert_eq!(entry.take(), stored);
            assert_eq!(entry.get(), Stored::Empty);
        }
    }
}
