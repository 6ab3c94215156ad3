//! The verifier, if the run file asks for it. At certain moments it stops the machine (`sched::stop_machine`).
//! It then checks every address space against the core's invariants, and that every frame of the machine has
//! an owner.
//!
//! The moments:
//! - periodically;
//! - when the first process has ended, with all others that live;
//! - when those have been killed. Then no address space, no pipe and no timer may be left, and no file without a
//!   name.
//!
//! The first violation ends the run.

mod flaw;
#[cfg(target_arch = "x86_64")]
pub mod guests;
pub mod spaces;

use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use faultless_frames::{Accounts, FrameAudit, Misuse, Use};
use faultless_mm::Violation;

use crate::arch::{TrapFrame, time};
use crate::console::Port;
use crate::files;
use crate::memory::machine::{Purpose, frames, memory};
use crate::process::{FIRST, alarm, family};
use crate::report::refuse;
use crate::sched::thread::Thread;
use crate::sched::{self, stop_machine};
use crate::swap;
use crate::sync::{Once, SpinLock};
pub use flaw::Mutant;
use linux_raw_sys::general::SIGKILL;

/// The settings in the run file.
#[derive(Clone, Copy, Default)]
pub struct Wish {
    pub is_wanted: bool,
    /// Milliseconds between two moments while the program runs; 0 for none.
    pub every: u64,
    /// The damage to do before the last moment but one, to show that the verifier notices it.
    pub flaw: Option<Mutant>,
}

/// Nanoseconds that killed processes may take to end: 60 s.
const PATIENCE: u64 = 60_000_000_000;

static WISH: Once<Wish> = Once::new();
static WANTED: AtomicBool = AtomicBool::new(false);

/// The number of moments verified.
static MOMENTS: AtomicU64 = AtomicU64::new(0);
/// The most address spaces at a moment.
static SPACES: AtomicU64 = AtomicU64::new(0);
/// The most pages that were mapped, each counted once, and those mapped more than once, at a moment.
static PAGES: AtomicU64 = AtomicU64::new(0);
/// The frame accounts of the last moment.
static LAST: SpinLock<Option<Accounts>> = SpinLock::new(None);

/// Which processes may exist at a moment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    Any,
    /// None: all their resources must be gone.
    Last,
}

/// The uses of frames, by their names in the report.
const NAMES: [(&str, Use); 16] = [
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
    ("swap", Use::SWAP),
    ("pipes", Use::of_port(Purpose::Pipe as u32)),
    ("trace", Use::of_port(Purpose::Trace as u32)),
    ("guests", Use::of_port(Purpose::Guest as u32)),
];

/// Whether the run is verified.
#[inline]
pub fn is_wanted() -> bool {
    WANTED.load(Ordering::Relaxed)
}

/// Records the settings, before any process exists, and starts the periodic verifier.
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

/// Verifies when the first process has ended and still has its address space; others may run.
pub fn with_those_that_live() {
    if is_wanted() {
        if let Some(flaw) = WISH.get().flaw {
            stop_machine::stop_machine(|| flaw.make());
        }
        check(Moment::Any);
    }
}

/// Kills all other processes and verifies what is left, once the first process has given back its resources.
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
            memory().verify_machine(frames(), all, |audit| enter_own(audit, moment))?;
        #[cfg(target_arch = "x86_64")]
        guests::for_each(|guest| guest.verify())?;
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
        if moment == Moment::Last && alarm::count() != 0 {
            return Err(Violation {
                rule: "a timer is left without a process",
                address: 0,
                value: alarm::count() as u64,
            });
        }
        if moment == Moment::Last && accounts.of(Use::PINNED) != 0 {
            return Err(Violation {
                rule: "a page is pinned without a process",
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

/// Enters the kernel's own frames in the frame audit.
fn enter_own(audit: &FrameAudit, moment: Moment) -> Result<(), Misuse> {
    for purpose in [
        Purpose::Heap,
        Purpose::Stack,
        Purpose::Trace,
        Purpose::Disk,
        Purpose::Hypervisor,
    ] {
        audit.enter_all_of_port(purpose as u32);
    }
    let mut entered = Ok(());
    swap::for_each_frame(&mut |frame| {
        entered = entered.and_then(|()| audit.enter(frame, Use::SWAP));
    });
    entered?;
    #[cfg(target_arch = "x86_64")]
    guests::for_each(|guest| {
        let mut entered = Ok(());
        guest.for_each_frame(&mut |frame| {
            entered = entered.and_then(|()| audit.enter(frame, Use::TABLE));
        });
        entered
    })?;
    if moment == Moment::Any {
        // Sleeping threads may hold pipes to which nothing else refers.
        audit.enter_all_of_port(Purpose::Pipe as u32);
        audit.enter_all_of_port(Purpose::Guest as u32);
    }
    Ok(())
}

/// Whether no files exist but those in the tree of files, when none is open or mapped; the core has entered
/// their pages. True if there is not enough memory to check.
fn has_no_lost_file() -> bool {
    let moment = MOMENTS.load(Ordering::Relaxed) + 1;
    let mut count = 0;
    let looked = files::tree::for_each_file(&mut |source| {
        // A source that is not new is another name of one already counted.
        count += u64::from(source.is_new(moment));
    });
    looked.is_err() || count == files::source::count()
}

/// Describes lost frames.
struct Loss(Accounts);

impl core::fmt::Display for Loss {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self(accounts) = self;
        let first = accounts.first_lost().map_or(0, |frame| frame.0 << 12);
        write!(
            f,
            "verification failed: {} of {} frames have no owner, the first at {first:#x}",
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

/// Writes this module's part of the report: nothing, or what was verified and a comma.
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
