//! Events: what happened when, in a ring per CPU.
//!
//! A ring is written by its CPU alone. The oldest events are overwritten; how
//! many were lost is known from the running number. Rings are read when their
//! CPU is not tracing (at the end of a run): there is no protocol for more.

use faultless_sync::atomic::Local;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Kind {
    /// A fault was resolved. `value`: ns it took.
    Fault = 1,
    /// A fault fell back: the entry stayed claimed.
    SpfPteLock = 2,
    /// A fault fell back: the mapping changed.
    SpfVmaChanged = 3,
    /// A fault fell back: the reverse map was not ready.
    SpfVmaNoanon = 4,
    /// A fault fell back: unsupported mapping.
    SpfVmaNotsup = 5,
    /// An access that is not allowed.
    SpfVmaAccess = 6,
    /// A fault fell back: the table changed.
    SpfPmdChanged = 7,
    /// Translations were flushed. `value`: bytes.
    Flush = 8,
    /// Mappings were changed at `address`. `value`: bytes.
    Map = 9,
    /// Mappings were removed at `address`. `value`: bytes.
    Unmap = 10,
    /// Mappings' protection was changed at `address`. `value`: bytes.
    Protect = 11,
}

impl Kind {
    const ALL: [Kind; 11] = [
        Kind::Fault,
        Kind::SpfPteLock,
        Kind::SpfVmaChanged,
        Kind::SpfVmaNoanon,
        Kind::SpfVmaNotsup,
        Kind::SpfVmaAccess,
        Kind::SpfPmdChanged,
        Kind::Flush,
        Kind::Map,
        Kind::Unmap,
        Kind::Protect,
    ];

    /// The event's name as perf shows it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Fault => "faults",
            Kind::SpfPteLock => "pagefault:spf_pte_lock",
            Kind::SpfVmaChanged => "pagefault:spf_vma_changed",
            Kind::SpfVmaNoanon => "pagefault:spf_vma_noanon",
            Kind::SpfVmaNotsup => "pagefault:spf_vma_notsup",
            Kind::SpfVmaAccess => "pagefault:spf_vma_access",
            Kind::SpfPmdChanged => "pagefault:spf_pmd_changed",
            Kind::Flush => "tlb:flush",
            Kind::Map => "mm:map",
            Kind::Unmap => "mm:unmap",
            Kind::Protect => "mm:protect",
        }
    }
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it ended, in ns of the machine's clock.
    pub time: u64,
    /// What happened.
    pub kind: Kind,
    /// Where, a virtual address.
    pub address: u64,
    /// How much; see [`Kind`].
    pub value: u64,
}

/// Words of memory that one event takes.
pub const WORDS: usize = 4;

/// One CPU's events. The memory is the port's: `words.len() / 4` events fit.
#[derive(Debug, Default)]
pub struct Ring {
    words: &'static [Local],
    on: Local,
    next: Local,
}

impl Ring {
    /// A ring over `words`, off.
    pub const fn new(words: &'static [Local]) -> Self {
        Self {
            words,
            on: Local::new(0),
            next: Local::new(0),
        }
    }

    /// Turns the ring on or off.
    pub fn enable(&self, on: bool) {
        self.on.set(u64::from(on && self.words.len() >= WORDS));
    }

    /// Whether events are kept.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.on.get() != 0
    }

    /// Keeps an event if the ring is on; `event` is not called otherwise.
    #[inline(always)]
    pub fn emit(&self, event: impl FnOnce() -> Event) {
        if self.is_on() {
            self.put(event());
        }
    }

    #[cold]
    fn put(&self, event: Event) {
        let capacity = self.words.len() / WORDS;
        let at = self.next.get() as usize % capacity * WORDS;
        for (word, value) in
            self.words[at..]
                .iter()
                .zip([event.time, event.kind as u64, event.address, event.value])
        {
            word.set(value);
        }
        self.next.add(1);
    }

    /// The events kept, oldest first, and how many were overwritten.
    pub fn read(&self) -> (impl Iterator<Item = Event> + '_, u64) {
        let capacity = (self.words.len() / WORDS) as u64;
        let end = self.next.get();
        let start = end.saturating_sub(capacity);
        let events = (start..end).filter_map(move |n| {
            let at = (n % capacity) as usize * WORDS;
            let kind = *Kind::ALL.get((self.words[at + 1].get() as usize).wrapping_sub(1))?;
            Some(Event {
                time: self.words[at].get(),
                kind,
                address: self.words[at + 2].get(),
                value: self.words[at + 3].get(),
            })
        });
        (events, start)
    }
}
