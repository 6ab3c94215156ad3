//! The race on one page, and the check of its content.

use std::sync::atomic::Ordering;

use super::Shared;
use crate::system::{PAGE, Stop, Thread};

const WORD: u64 = 8;
const WORDS: u64 = PAGE / WORD;

/// How the threads access a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All threads write at the same time.
    Fresh,
    /// One thread has read it before; then all write at the same time.
    ReadBefore,
    /// Each thread reads its word, then writes it.
    ReadFirst,
    /// Odd threads read while even threads write; then they write.
    ReadBeside,
    /// All threads add 1 to the same word, atomically.
    Add,
}

/// All kinds; page number n has kind n modulo their number.
pub const KINDS: [Kind; 5] = [
    Kind::Fresh,
    Kind::ReadBefore,
    Kind::ReadFirst,
    Kind::ReadBeside,
    Kind::Add,
];

impl Kind {
    /// Its name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Fresh => "fresh",
            Kind::ReadBefore => "read-before",
            Kind::ReadFirst => "read-first",
            Kind::ReadBeside => "read-beside",
            Kind::Add => "atomic-add",
        }
    }

    fn of(page: u64) -> Self {
        KINDS[page as usize % KINDS.len()]
    }
}

/// For each kind: first writes, those lost, and words that must be zero and are not.
#[derive(Default)]
pub struct Tally(pub [[u64; 3]; KINDS.len()]);

impl Tally {
    /// Adds the counts of another tally.
    pub fn add(&mut self, other: &Tally) {
        let all = self.0.iter_mut().flatten().zip(other.0.iter().flatten());
        all.for_each(|(sum, more)| *sum += more);
    }

    /// The sums over all kinds.
    pub fn total(&self) -> [u64; 3] {
        std::array::from_fn(|i| self.0.iter().map(|counts| counts[i]).sum())
    }
}

/// One thread's part in the race on page `number`.
pub fn race(thread: &Thread<'_>, shared: &Shared, number: u64, own: u64) -> Result<(), Stop> {
    let page = page_at(shared, number);
    let word = page + word_of(shared, own) * WORD;
    let read = || check_unwritten(thread, number, thread.load(word)?);
    let write = || thread.store(word, value_of(shared, number, own));
    let kind = Kind::of(number);
    if kind == Kind::ReadBefore && own == number % shared.options.threads {
        read()?;
    }
    shared.gate.pass(thread)?;
    match kind {
        Kind::Fresh | Kind::ReadBefore => write(),
        Kind::ReadFirst => {
            read()?;
            write()
        }
        Kind::ReadBeside => {
            if own % 2 == 1 {
                (0..4).try_for_each(|_| read())?;
            }
            write()
        }
        Kind::Add => thread.fetch_add(page, 1).map(drop),
    }
}

/// Counts the errors in page `number` after all threads have written.
pub fn check(
    thread: &Thread<'_>,
    shared: &Shared,
    number: u64,
    tally: &mut Tally,
) -> Result<(), Stop> {
    let page = page_at(shared, number);
    let kind = Kind::of(number);
    let [written, lost, stale] = &mut tally.0[number as usize % KINDS.len()];
    for i in 0..WORDS {
        let (is, want) = (thread.load(page + i * WORD)?, expected(shared, number, i));
        if is == want {
            continue;
        }
        match (want, kind) {
            (0, _) => *stale += 1,
            (_, Kind::Add) if is < want => *lost += want - is,
            _ => *lost += 1,
        }
    }
    *written += shared.options.threads;
    Ok(())
}

fn page_at(shared: &Shared, number: u64) -> u64 {
    // The disturbed page is not counted.
    let skip = u64::from(number >= shared.disturbed());
    shared.region.load(Ordering::Relaxed) + (number + skip) * PAGE
}

/// The number of a thread's word in a page; threads are spread over the page, and no two
/// share a word.
fn word_of(shared: &Shared, own: u64) -> u64 {
    own * (WORDS / shared.options.threads)
}

/// The value that a thread writes there: never 0, and never the same twice.
fn value_of(shared: &Shared, number: u64, own: u64) -> u64 {
    (shared.round.load(Ordering::Relaxed) << 44 | number << 13 | own) + 1
}

/// The expected value of a word after all threads have written.
fn expected(shared: &Shared, number: u64, word: u64) -> u64 {
    let threads = shared.options.threads;
    if Kind::of(number) == Kind::Add {
        return if word == 0 { threads } else { 0 };
    }
    let stride = WORDS / threads;
    if !word.is_multiple_of(stride) || word / stride >= threads {
        return 0;
    }
    value_of(shared, number, word / stride)
}

fn check_unwritten(thread: &Thread<'_>, number: u64, seen: u64) -> Result<(), Stop> {
    if seen == 0 {
        return Ok(());
    }
    Err(thread.die(format_args!(
        "page {number} read {seen:#x} before it was written"
    )))
}
