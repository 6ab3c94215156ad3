//! The verifier, if the run file asks for it: at moments at which everything stands still
//! (`sched::stop_machine`) every address space is checked against the core's invariants, and every frame
//! of the machine has to be somebody's.
//!
//! The moments: every so often; when the first process has ended, with all others that live; and
//! when those have been killed, so that no address space and no pipe may be left, and no file that
//! the tree of files has not. The first violation ends the run.

mod flaw;
pub mod spaces;

use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use faultless_frames::{Accounts, FrameAudit, Misuse, Use};
use faultless_mm::Violation;

use crate::arch::{TrapFrame, time};
use crate::console::Port;
use crate::files;
use crate::memory::machine::{Purpose, frames, memory};
use crate::process::{FIRST, family};
use crate::report::refuse;
use crate::sched::thread::Thread;
use crate::sched::{self, stop_machine};
use crate::sync::{Once, SpinLock};
pub use flaw::Mutant;
use linux_raw_sys::general::SIGKILL;

/// What the run file asks for.
#[derive(Clone, Copy, Default)]
pub struct Wish {
    pub is_wanted: bool,
    /// Milliseconds between two moments while the program runs; 0 for none.
    pub every: u64,
    /// What to damage before the last moment but one, to show that it is noticed.
    pub flaw: Option<Mutant>,
}

/// How long processes may take to end when they are killed: 60 s.
const PATIENCE: u64 = 60_000_000_000;

static WISH: Once<Wish> = Once::new();
static WANTED: AtomicBool = AtomicBool::new(false);

/// What was verified.
static MOMENTS: AtomicU64 = AtomicU64::new(0);
/// The most address spaces at a moment.
static SPACES: AtomicU64 = AtomicU64::new(0);
/// The most pages that were mapped, each counted once, and those mapped more than once, at a moment.
static PAGES: AtomicU64 = AtomicU64::new(0);
/// What frames were at the last moment.
static LAST: SpinLock<Option<Accounts>> = SpinLock::new(None);

/// Which processes there may be at a moment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    Any,
    /// None: what they had must be gone.
    Last,
}

/// What frames can be, by the report's names.
const NAMES: [(&str, Use); 14] = [
    ("free", Use::FREE),
    ("cached", Use::CACHED),
    ("zeroed", Use::ZEROED),
    ("zero_page", Use::ZERO_PAGE),
    ("pages", Use::PAGE),
    ("tables", Use::TABLE),
    ("nodes", Use::SLAB),
    ("address_spaces", Use::SPACE),
    ("heap", Use::of_port(Purpose::Heap as u32)),
    ("stacks", Use::of_port(Purpose::Stack as u32)),
    ("files", Use::FILE),
    ("pinned", Use::PINNED),
    ("pipes", Use::of_port(Purpose::Pipe as u32)),
    ("trace", Use::of_port(Purpose::Trace as u32)),
];

/// Whether the run is verified.
#[inline]
pub fn is_wanted() -> bool {
    WANTED.load(Ordering::Relaxed)
}

/// Takes note of what is wanted, before there is any process.
///
/// # Errors
/// A line that says what is wrong.
pub fn begin(wish: Wish) -> Result<(), &'static str> {
    WISH.set(wish);
    WANTED.store(wish.is_wanted, Ordering::Relaxed);
    if wish.is_wanted && wish.every != 0 {
        let thread = Thread::new(0, false, again_and_again, &TrapFrame::default());
        sched::enqueue(thread.map_err(|_| "out of memory: no room for the verifier's thread")?);
    }
    Ok(())
}

/// The thread that verifies while programs run.
fn again_and_again(_: &'static Thread) {
    loop {
        stop_machine::nap(WISH.get().every * 1_000_000);
        check(Moment::Any);
    }
}

/// The first process has ended and still has its address space; others may run.
pub fn with_those_that_live() {
    if is_wanted() {
        if let Some(flaw) = WISH.get().flaw {
            stop_machine::stop_machine(|| flaw.make());
        }
        check(Moment::Any);
    }
}

/// The first process has given back what it had: ends all others, and looks what is left.
pub fn without_processes() {
    if !is_wanted() {
        return;
    }
    let end = time::now() + PATIENCE;
    while lives_another() {
        family::for_each(|entry| entry.id != FIRST, &mut |process| {
            process.kill(SIGKILL);
        });
        if time::now() > end {
            refuse(format_args!(
                "verification failed: a process cannot be killed"
            ));
        }
        stop_machine::nap(1_000_000);
    }
    check(Moment::Last);
}

fn lives_another() -> bool {
    family::with(|family| {
        let mut entries = family.entries().iter();
        entries.any(|entry| entry.id != FIRST && entry.process.is_some())
    })
}

/// Verifies everything; ends the run if something is wrong.
fn check(moment: Moment) {
    match stop_machine::stop_machine(|| look(moment)) {
        Err(violation) => refuse(format_args!("verification failed: {violation}")),
        Ok(accounts) if accounts.lost() != 0 => refuse(format_args!("{}", Loss(accounts))),
        Ok(accounts) => *LAST.lock() = Some(accounts),
    }
}

fn look(moment: Moment) -> Result<Accounts, Violation> {
    spaces::with_all(|count, all| {
        let (census, accounts) =
            memory().verify_machine(frames(), all, |books| enter_own(books, moment))?;
        if moment == Moment::Last && count != 0 {
            return Err(Violation {
                rule: "an address space is left without a process",
                address: 0,
                value: count as u64,
            });
        }
        if moment == Moment::Last && !has_no_lost_file() {
            return Err(Violation {
                rule: "a file is left that has no name",
                address: 0,
                value: files::source::count(),
            });
        }
        if moment == Moment::Last && accounts.of(Use::PINNED) != 0 {
            return Err(Violation {
                rule: "a page is pinned by nobody",
                address: 0,
                value: accounts.of(Use::PINNED),
            });
        }
        MOMENTS.fetch_add(1, Ordering::Relaxed);
        SPACES.fetch_max(count as u64, Ordering::Relaxed);
        PAGES.fetch_max(census.pages, Ordering::Relaxed);
        Ok(accounts)
    })
}

/// Enters the kernel's own frames.
fn enter_own(books: &FrameAudit, moment: Moment) -> Result<(), Misuse> {
    for purpose in [Purpose::Heap, Purpose::Stack, Purpose::Trace] {
        books.enter_all_of_port(purpose as u32);
    }
    if moment == Moment::Any {
        // Threads that sleep may hold pipes that nothing else leads to.
        books.enter_all_of_port(Purpose::Pipe as u32);
    }
    Ok(())
}

/// Whether there are no more files than the tree of files has, when nobody has any open or mapped;
/// what they have the core has entered. True if there is no memory to look.
fn has_no_lost_file() -> bool {
    let moment = MOMENTS.load(Ordering::Relaxed) + 1;
    let mut count = 0;
    let looked = files::tree::for_each_file(&mut |source| {
        // Others are names of one that was seen.
        count += u64::from(source.is_new(moment));
    });
    looked.is_err() || count == files::source::count()
}

/// What is lost, in words.
struct Loss(Accounts);

impl core::fmt::Display for Loss {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self(accounts) = self;
        let first = accounts.first_lost().map_or(0, |frame| frame.0 << 12);
        write!(
            f,
            "verification failed: {} of {} frames are nobody's, the first at {first:#x}",
            accounts.lost(),
            accounts.all()
        )?;
        let mut separator = "; last used as";
        for (name, what) in NAMES {
            if accounts.lost_of(what) != 0 {
                write!(f, "{separator} {name}: {}", accounts.lost_of(what))?;
                separator = ",";
            }
        }
        Ok(())
    }
}

/// Writes the report's part: nothing, or what was verified and a comma.
pub fn report(out: &mut Port) {
    if !is_wanted() {
        return;
    }
    let _ = write!(
        out,
        "\"verified\":{{\"moments\":{},\"spaces\":{},\"pages\":{},\"frames\":",
        MOMENTS.load(Ordering::Relaxed),
        SPACES.load(Ordering::Relaxed),
        PAGES.load(Ordering::Relaxed),
    );
    let mut separator = "{";
    if let Some(accounts) = &*LAST.lock() {
        for (name, what) in NAMES {
            let _ = write!(out, "{separator}\"{name}\":{}", accounts.of(what));
            separator = ",";
        }
        let _ = write!(out, "}}");
    } else {
        let _ = write!(out, "null");
    }
    let _ = write!(out, "}},");
}
