//! forceswap: does the first write to a page that comes back from swap copy it? The twin of
//! `workloads/c/forceswap.c`.
//!
//! Each round pages memory out by `MADV_PAGEOUT`, and then reads and writes every page. The read brings the page back;
//! only the write is timed, in the host's nanoseconds. The other threads run in the same address space, so that there
//! are TLBs to flush.
//!
//! Each page has a word of its own, which counts the rounds. The read checks it.

use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use faultless_mm::{PROT_READ, PROT_WRITE, advice, flags};

use crate::command_line::{Item, Syntax, parse_number};
use crate::system::{MAX_THREADS, PAGE, Stop, Thread};

/// Spins before a yield.
const SPINS: u32 = 200;

struct Options {
    threads: u64,
    rounds: u64,
    pages: u64,
}

const SYNTAX: Syntax = Syntax {
    letters: "",
    words: &["help"],
    usage,
};

fn usage(name: &str) -> String {
    format!(
        "Usage: {name} NTHREADS NOPS NPAGES\n\n\
         \tNTHREADS\tThreads in all; one works, the others spin\n\
         \tNOPS\t\tRounds in which all pages are paged out, read and written\n\
         \tNPAGES\t\tPages\n\
         \t--help\t\tPrint this\n\
         Needs swap. Prints the nanoseconds of the writes of a round, 'time: N'.\n\
         Example: {name} 2 100000 1\n"
    )
}

fn read_options(thread: &Thread<'_>, arguments: &[String]) -> Result<Options, Stop> {
    let mut items = SYNTAX.read(arguments);
    for item in items.by_ref() {
        match item.map_err(|why| SYNTAX.refuse(thread, why))? {
            Item::Letter(..) => {}
            Item::Word(_) => return Err(SYNTAX.help(thread)),
        }
    }
    let operands = items.operands();
    let [threads, rounds, pages] = operands[..] else {
        return Err(SYNTAX.refuse(thread, "three arguments are expected"));
    };
    let number = |name, text, most| {
        parse_number(text, false, 1, most).ok_or_else(|| {
            let why = format_args!("{name}: not a number from 1 to {most}: {text}");
            SYNTAX.refuse(thread, why)
        })
    };
    Ok(Options {
        threads: number("NTHREADS", threads, MAX_THREADS)?,
        rounds: number("NOPS", rounds, u64::from(u32::MAX) - 1)?,
        pages: number("NPAGES", pages, 1 << 30)?,
    })
}

/// The memory that is paged out.
struct Region {
    start: u64,
    pages: u64,
}

impl Region {
    /// Maps the pages, and writes the first word to each.
    fn new(thread: &Thread<'_>, pages: u64) -> Result<Self, Stop> {
        let anonymous = flags::PRIVATE | flags::ANONYMOUS;
        let size = pages * PAGE;
        let start = thread.call(|space| space.mmap(0, size, PROT_READ | PROT_WRITE, anonymous))?;
        let start = start.map_err(|_| thread.die("no memory"))?;
        let region = Self { start, pages };
        for page in 0..pages {
            thread.store(region.word_of(page), word(page, 0))?;
        }
        Ok(region)
    }

    fn word_of(&self, page: u64) -> u64 {
        self.start + page * PAGE
    }

    /// Pages all pages out, then reads and writes each. Returns the nanoseconds of the writes.
    fn do_round(&self, thread: &Thread<'_>, round: u64) -> Result<u64, Stop> {
        let size = self.pages * PAGE;
        let result = thread.call(|space| space.madvise(self.start, size, advice::PAGEOUT))?;
        result.map_err(|error| thread.die(format_args!("cannot page out: {error}")))?;
        let mut took = 0;
        for page in 0..self.pages {
            let at = self.word_of(page);
            let (found, old) = (thread.load(at)?, word(page, round));
            if found != old {
                let why = format_args!(
                    "page {page} came back with {found:#x} instead of {old:#x} in round {round}"
                );
                return Err(thread.die(why));
            }
            let begun = Instant::now();
            thread.store(at, word(page, round + 1))?;
            took += begun.elapsed().as_nanos() as u64;
        }
        Ok(took)
    }

    fn check_at_the_end(&self, thread: &Thread<'_>, rounds: u64) -> Result<(), Stop> {
        for page in 0..self.pages {
            if thread.load(self.word_of(page))? != word(page, rounds + 1) {
                return Err(thread.die(format_args!("page {page} has lost its last write")));
            }
        }
        Ok(())
    }
}

/// The word of a page after this many rounds: never 0, and different for all pages.
fn word(page: u64, round: u64) -> u64 {
    (page + 1) << 32 | u64::from(round as u32)
}

/// Runs the program.
pub fn main(thread: &Thread<'_>, arguments: &[String]) -> Result<i32, Stop> {
    let options = read_options(thread, arguments)?;
    let region = Region::new(thread, options.pages)?;
    let stop = &AtomicBool::new(false);
    thread.team(|team| {
        for number in 1..options.threads as usize {
            team.start(number, move |thread| spin(thread, stop))
                .map_err(|error| thread.die(format_args!("cannot start a thread: {error}")))?;
        }
        let result = measure(thread, &options, &region);
        stop.store(true, Ordering::Relaxed);
        result
    })?;
    Ok(0)
}

fn spin(thread: &Thread<'_>, stop: &AtomicBool) -> Result<(), Stop> {
    while !stop.load(Ordering::Relaxed) {
        (0..SPINS).for_each(|_| hint::spin_loop());
        thread.yield_now()?;
    }
    Ok(())
}

fn measure(thread: &Thread<'_>, options: &Options, region: &Region) -> Result<(), Stop> {
    let major_faults = || thread.process().major_faults();
    // One round is not measured. It shows whether there is swap at all.
    let before = major_faults();
    region.do_round(thread, 0)?;
    if major_faults() == before {
        let why = "MADV_PAGEOUT has paged nothing out: this system has no swap, or it is full";
        return Err(thread.die(why));
    }
    let (before, begun) = (major_faults(), Instant::now());
    let mut time = 0;
    for round in 1..=options.rounds {
        time += region.do_round(thread, round)?;
    }
    let (took, faults) = (begun.elapsed(), major_faults() - before);
    region.check_at_the_end(thread, options.rounds)?;
    let expected = options.rounds * options.pages;
    thread.print(format!("time: {}\n", time / options.rounds));
    thread.print(format!("paged: {faults} of {expected}\n"));
    // A page that stays costs a fraction of one that goes: the figure would mix the two.
    if faults < expected - expected / 20 {
        let why = format_args!("only {faults} of {expected} pages were paged out");
        return Err(thread.die(why));
    }
    let each = took.as_nanos() as f64 / expected as f64;
    thread.print(format!("{each:.1} ns/op\n"));
    Ok(())
}
