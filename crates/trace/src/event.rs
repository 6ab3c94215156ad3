//! One event, and how it is packed into four words.
//!
//! | word | bits | content |
//! | --- | --- | --- |
//! | 0 | 64 | when it began, in ns of the machine's clock |
//! | 1 | 0–7 | its kind |
//! | | 8–47 | how long it took, in ns (at most 18 minutes) |
//! | | 48–55, 56–63 | detail and code: see [`Event`] |
//! | 2 | 64 | an address |
//! | 3 | 64 | a value, mostly a length |
//!
//! A switch to another thread has its process and thread in bits 8–35 and 36–63 of
//! word 1, and the thread's name in words 2 and 3.

use crate::kind::{How, Kind, Reason};

/// Words of memory that an event takes.
pub const WORDS: usize = 4;

const DURATION_BITS: u32 = 40;
const LONGEST: u64 = (1 << DURATION_BITS) - 1;
const ID_BITS: u32 = 28;
const ID: u64 = (1 << ID_BITS) - 1;
/// Bit of a fault's detail: a page table was put in place, too.
const TABLE: u8 = 0x80;

/// What happened when. Which thread it happened to is known from the switch before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it began, in ns of the machine's clock.
    pub start: u64,
    /// What happened.
    pub kind: Kind,
    /// How it is told in 56 bits.
    payload: u64,
    /// Where, a virtual address; see [`Kind`] for others.
    pub address: u64,
    /// How much; see [`Kind`].
    pub value: u64,
}

/// A CPU goes on with this thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Its process.
    pub process: u32,
    /// The thread; 0: none, the CPU is idle.
    pub thread: u32,
    /// Its name, filled up with zeroes.
    pub name: [u8; 16],
}

impl Switch {
    /// To no thread.
    pub const fn idle() -> Self {
        Self {
            process: 0,
            thread: 0,
            name: [0; 16],
        }
    }
}

impl Event {
    /// Something that took from `start` to `end`.
    pub fn slice(kind: Kind, start: u64, end: u64, address: u64, value: u64) -> Self {
        Self {
            start,
            kind,
            payload: end.saturating_sub(start).min(LONGEST),
            address,
            value,
        }
    }

    /// Something that took no time.
    pub fn instant(kind: Kind, time: u64, address: u64, value: u64) -> Self {
        Self::slice(kind, time, time, address, value)
    }

    /// A fault.
    pub fn fault(
        start: u64,
        end: u64,
        address: u64,
        how: How,
        table: bool,
        reason: Reason,
    ) -> Self {
        let detail = how as u8 | if table { TABLE } else { 0 };
        Self::slice(Kind::Fault, start, end, address, 0).with(detail, reason as u8)
    }

    /// With a detail and a code; of an operation: 0 and its error.
    #[must_use]
    pub fn with(mut self, detail: u8, code: u8) -> Self {
        self.payload &= LONGEST;
        self.payload |= u64::from(detail) << DURATION_BITS | u64::from(code) << (DURATION_BITS + 8);
        self
    }

    /// A switch to another thread. Of each number, the lower 28 bits.
    pub fn switch(time: u64, to: Switch) -> Self {
        let half = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&to.name[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        Self {
            start: time,
            kind: Kind::Switch,
            payload: u64::from(to.process) & ID | (u64::from(to.thread) & ID) << ID_BITS,
            address: half(0),
            value: half(8),
        }
    }

    /// How long it took, in ns.
    pub fn duration(&self) -> u64 {
        match self.kind {
            Kind::Switch => 0,
            _ => self.payload & LONGEST,
        }
    }

    /// See [`Event::with`].
    pub fn detail(&self) -> u8 {
        (self.payload >> DURATION_BITS) as u8
    }

    /// The code: an error's number, or a fault's reason.
    pub fn code(&self) -> u8 {
        (self.payload >> (DURATION_BITS + 8)) as u8
    }

    /// Of a fault: how it ended.
    pub fn how(&self) -> How {
        How::from_number(self.detail() & !TABLE).unwrap_or(How::Unknown)
    }

    /// Of a fault: whether it put a page table in place.
    pub fn has_table(&self) -> bool {
        self.detail() & TABLE != 0
    }

    /// Of a fault: why it fell back.
    pub fn reason(&self) -> Reason {
        Reason::from_number(self.code()).unwrap_or(Reason::None)
    }

    /// Of a switch: to which thread.
    pub fn to_thread(&self) -> Switch {
        let mut name = [0; 16];
        name[..8].copy_from_slice(&self.address.to_le_bytes());
        name[8..].copy_from_slice(&self.value.to_le_bytes());
        Switch {
            process: (self.payload & ID) as u32,
            thread: (self.payload >> ID_BITS & ID) as u32,
            name,
        }
    }

    /// Packed.
    pub fn to_words(self) -> [u64; WORDS] {
        [
            self.start,
            self.kind as u64 | self.payload << 8,
            self.address,
            self.value,
        ]
    }

    /// Unpacked; `None` for words that are no event.
    pub fn from_words(words: [u64; WORDS]) -> Option<Self> {
        Some(Self {
            start: words[0],
            kind: Kind::from_number(words[1] as u8)?,
            payload: words[1] >> 8,
            address: words[2],
            value: words[3],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, How, Kind, LONGEST, Reason, Switch};

    fn there_and_back(event: Event) -> Event {
        Event::from_words(event.to_words()).unwrap()
    }

    #[test]
    fn a_fault_keeps_all_it_says() {
        let fault = Event::fault(5, 12, 0x7fff_f000, How::Reuse, true, Reason::PteLock);
        let back = there_and_back(fault);
        assert_eq!(back, fault);
        assert_eq!(
            (back.start, back.duration(), back.address),
            (5, 7, 0x7fff_f000)
        );
        assert_eq!(
            (back.how(), back.has_table(), back.reason()),
            (How::Reuse, true, Reason::PteLock)
        );
    }

    #[test]
    fn an_operation_keeps_its_error() {
        let back = there_and_back(Event::slice(Kind::Munmap, 0, 9, 1 << 46, u64::MAX).with(0, 133));
        assert_eq!(
            (back.duration(), back.code(), back.value),
            (9, 133, u64::MAX)
        );
    }

    #[test]
    fn durations_are_never_negative_and_never_spill() {
        assert_eq!(Event::slice(Kind::Mmap, 10, 5, 0, 0).duration(), 0);
        let long = Event::slice(Kind::Mmap, 0, u64::MAX, 0, 0).with(3, 4);
        assert_eq!(
            (long.duration(), long.detail(), long.code()),
            (LONGEST, 3, 4)
        );
    }

    #[test]
    fn a_switch_keeps_the_thread() {
        let mut name = [0; 16];
        name[..15].copy_from_slice(b"fifteen letters");
        let to = Switch {
            process: (1 << 28) - 1,
            thread: 1 << 27,
            name,
        };
        let back = there_and_back(Event::switch(77, to));
        assert_eq!((back.to_thread(), back.start, back.duration()), (to, 77, 0));
    }

    #[test]
    fn other_words_are_no_event() {
        assert_eq!(Event::from_words([0; 4]), None);
        assert_eq!(Event::from_words([u64::MAX; 4]), None);
    }
}
