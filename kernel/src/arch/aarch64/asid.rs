//! Address-space identifiers (ASIDs). A TLB entry has one, so a CPU that leaves a space keeps its translations for
//! when it comes back.
//!
//! - **A space has one ASID as long as it lives**: its number ([`SpaceId::id`], never reused) modulo the ASIDs there
//!   are. None is allocated, and there are no generations. ASID 0 is that of CPUs in no space.
//! - **Several spaces may have the same ASID.** Each CPU remembers the number of the space that it took last, in a
//!   table that the ASID indexes ([`is_new`]). If it takes another one, it first drops all translations of that ASID.
//!   So its TLB holds translations of one space for each ASID, the one that it took last.
//! - **A CPU stays in a space's set of CPUs** until the space ends (rule R2), so no flush misses what it keeps. The last
//!   flush is that of the ASID, before the tables are freed.
//!
//! Linux gives ASIDs out in generations instead, with a flush of all CPUs when they are used up (its
//! `arch/arm64/mm/context.c`).
//!
//! *Writes*: this CPU's table.

use core::sync::atomic::{AtomicU64, Ordering};

use faultless_paging::SpaceId;

use super::percpu::{self, MAX_CPUS};
use super::sysreg::read_sysreg;

/// Places of the table of a CPU; a few more than the spaces that take turns on it.
const PLACES: usize = 256;

/// The numbers of the spaces that a CPU took last; 0 is none's.
#[repr(align(128))]
struct Taken([AtomicU64; PLACES]);

static TAKEN: [Taken; MAX_CPUS] =
    [const { Taken([const { AtomicU64::new(0) }; PLACES]) }; MAX_CPUS];

/// How many ASIDs spaces can have.
static COUNT: AtomicU64 = AtomicU64::new(1);

/// How many ASIDs this CPU knows, without 0.
fn known() -> u64 {
    let bits = match read_sysreg!("id_aa64mmfr0_el1") >> 4 & 15 {
        0b0010 => 16,
        _ => 8,
    };
    (1 << bits) - 1
}

/// Finds out how many ASIDs there are, and takes at most `most` of them; on the boot CPU.
pub fn choose(most: Option<u64>) {
    let known = known();
    COUNT.store(most.unwrap_or(known).clamp(1, known), Ordering::Relaxed);
}

/// Whether this CPU knows all ASIDs in use.
pub fn fit() -> bool {
    COUNT.load(Ordering::Relaxed) <= known()
}

/// The ASID of a space.
#[inline]
pub fn of(space: SpaceId) -> u64 {
    1 + space.id % COUNT.load(Ordering::Relaxed)
}

/// Takes an ASID for a space on this CPU. Returns whether the TLB may hold translations of another space for it.
#[inline]
pub fn is_new(asid: u64, space: SpaceId) -> bool {
    let taken = &TAKEN[percpu::cpu_number() as usize].0[asid as usize % PLACES];
    let is_new = taken.load(Ordering::Relaxed) != space.id;
    if is_new {
        taken.store(space.id, Ordering::Relaxed);
    }
    is_new
}
