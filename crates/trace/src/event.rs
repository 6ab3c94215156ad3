//! A trace event, and its packing into four words.
//!
//! | word | bits | content |
//! | --- | --- | --- |
//! | 0 | 64 | its start, in ns of the machine's clock |
//! | 1 | 0–7 | its kind |
//! | | 8–47 | its duration, in ns (at most 18 minutes) |
//! | | 48–55, 56–63 | detail and code: see [`Event`] |
//! | 2 | 64 | an address |
//! | 3 | 64 | a value, mostly a length |
//!
//! A switch to another thread has the process in bits 8–35 of word 1, the thread in bits 36–63, and the
//! thread's name in words 2 and 3.
//!
//! A guest's fault has no duration. The guest's entry as it was found is in word 3. Word 1 has the bits in which the new entry
//! differs, bits 0–11 in its bits 8–19 and bits 48–63 in 20–35: frames are between them, and stay. Then the vCPU
//! (36–51), whether the fault was spurious (52), whether it was fixed (53), and the error code (56–63).

use crate::kind::{How, Kind, Reason};

/// The number of words of an event.
pub const WORDS: usize = 4;

const DURATION_BITS: u32 = 40;
const LONGEST: u64 = (1 << DURATION_BITS) - 1;
const ID_BITS: u32 = 28;
const ID: u64 = (1 << ID_BITS) - 1;
/// Bit of a fault's detail: the fault also installed a page table.
const TABLE: u8 = 0x80;

/// A trace event. The switch before it names its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The start, in ns of the machine's clock.
    pub start: u64,
    /// The kind of event.
    pub kind: Kind,
    /// The duration, the detail and the code, or the ids of a switch, in 56 bits.
    payload: u64,
    /// A virtual address; see [`Kind`] for other meanings.
    pub address: u64,
    /// A value; see [`Kind`].
    pub value: u64,
}

/// A switch of a CPU to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The thread's process.
    pub process: u32,
    /// The thread; 0 if the CPU is idle.
    pub thread: u32,
    /// The thread's name, padded with zeroes.
    pub name: [u8; 16],
}

impl Switch {
    /// Returns a switch to no thread.
    pub const fn idle() -> Self {
        Self {
            process: 0,
            thread: 0,
            name: [0; 16],
        }
    }
}

/// A guest's fault, as the fast path has seen it (Linux: the event of this name).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastPageFault {
    /// The number of the vCPU; its lower 16 bits are kept.
    pub vcpu: u32,
    /// The guest-physical address.
    pub address: u64,
    /// The lower bits of the error code of the machine's exit.
    pub error_code: u8,
    /// The guest's entry as it was found; 0 if there is none.
    pub old: u64,
    /// The entry as the fast path has left it. Has the same frame.
    pub new: u64,
    /// The entry allowed the access already.
    pub is_spurious: bool,
    /// The fast path has restored the access. If neither holds, the page has to be mapped.
    pub is_fixed: bool,
}

/// Bits 0 to 11 of an entry.
const LOW: u64 = 0xfff;
/// The first of the bits of an entry above all frames, and where they are in a payload.
const HIGH: (u32, u32) = (48, 12);
const VCPU: u32 = 28;
const SPURIOUS: u32 = 44;
const FIXED: u32 = 45;

impl Event {
    /// Returns the event of a guest's fault.
    pub fn fast_page_fault(time: u64, fault: &FastPageFault) -> Self {
        let changed = fault.old ^ fault.new;
        let bits = changed & LOW | changed >> HIGH.0 << HIGH.1;
        let outcome = u64::from(fault.is_spurious) << SPURIOUS | u64::from(fault.is_fixed) << FIXED;
        let vcpu = u64::from(fault.vcpu & 0xffff) << VCPU;
        Self {
            start: time,
            kind: Kind::FastPageFault,
            payload: bits | vcpu | outcome | u64::from(fault.error_code) << (DURATION_BITS + 8),
            address: fault.address,
            value: fault.old,
        }
    }

    /// Returns a guest's fault.
    pub fn to_fast_page_fault(&self) -> FastPageFault {
        let high = self.payload >> HIGH.1 & 0xffff;
        FastPageFault {
            vcpu: (self.payload >> VCPU & 0xffff) as u32,
            address: self.address,
            error_code: self.code(),
            old: self.value,
            new: self.value ^ (self.payload & LOW | high << HIGH.0),
            is_spurious: self.payload >> SPURIOUS & 1 != 0,
            is_fixed: self.payload >> FIXED & 1 != 0,
        }
    }

    /// Returns an event from `start` to `end`.
    pub fn slice(kind: Kind, start: u64, end: u64, address: u64, value: u64) -> Self {
        Self {
            start,
            kind,
            payload: end.saturating_sub(start).min(LONGEST),
            address,
            value,
        }
    }

    /// Returns an event without a duration.
    pub fn instant(kind: Kind, time: u64, address: u64, value: u64) -> Self {
        Self::slice(kind, time, time, address, value)
    }

    /// Returns the event of a fault.
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

    /// Returns the event with a detail and a code. An operation has 0 and its error.
    #[must_use]
    pub fn with(mut self, detail: u8, code: u8) -> Self {
        self.payload &= LONGEST;
        self.payload |= u64::from(detail) << DURATION_BITS | u64::from(code) << (DURATION_BITS + 8);
        self
    }

    /// Returns the event of a switch to another thread. It keeps the lower 28 bits of each number.
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

    /// Returns the duration, in ns.
    pub fn duration(&self) -> u64 {
        match self.kind {
            Kind::Switch | Kind::FastPageFault => 0,
            _ => self.payload & LONGEST,
        }
    }

    /// Returns the detail; see [`Event::with`].
    pub fn detail(&self) -> u8 {
        (self.payload >> DURATION_BITS) as u8
    }

    /// Returns the code: an error number, or a fault's reason.
    pub fn code(&self) -> u8 {
        (self.payload >> (DURATION_BITS + 8)) as u8
    }

    /// Returns the outcome of a fault.
    pub fn how(&self) -> How {
        How::from_number(self.detail() & !TABLE).unwrap_or(How::Unknown)
    }

    /// Whether a fault installed a page table.
    pub fn has_table(&self) -> bool {
        self.detail() & TABLE != 0
    }

    /// Returns the reason that a fault fell back.
    pub fn reason(&self) -> Reason {
        Reason::from_number(self.code()).unwrap_or(Reason::None)
    }

    /// Returns the thread of a switch.
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

    /// Packs the event.
    pub fn to_words(self) -> [u64; WORDS] {
        [
            self.start,
            self.kind as u64 | self.payload << 8,
            self.address,
            self.value,
        ]
    }

    /// Unpacks an event; `None` for words that are no event.
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
    use super::{Event, FastPageFault, How, Kind, LONGEST, Reason, Switch};

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
    fn a_guests_fault_keeps_both_entries() {
        let fault = FastPageFault {
            vcpu: 65_535,
            address: 0x7_ffff_f123,
            error_code: 0x1f,
            old: 0x8040_000f_ffff_f000,
            new: 0x7fbf_000f_ffff_ffff,
            is_spurious: false,
            is_fixed: true,
        };
        let back = there_and_back(Event::fast_page_fault(9, &fault));
        assert_eq!(back.to_fast_page_fault(), fault);
        assert_eq!((back.start, back.duration()), (9, 0));
        let spurious = FastPageFault {
            is_spurious: true,
            ..FastPageFault::default()
        };
        let back = there_and_back(Event::fast_page_fault(9, &spurious));
        assert_eq!(back.to_fast_page_fault(), spurious);
    }

    #[test]
    fn other_words_are_no_event() {
        assert_eq!(Event::from_words([0; 4]), None);
        assert_eq!(Event::from_words([u64::MAX; 4]), None);
    }
}
