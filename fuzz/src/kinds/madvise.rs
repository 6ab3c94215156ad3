//! `madvise`.

use std::fmt::Write as _;

use crate::kind::{ADDRESS, Act, Kind, LENGTH, Meaning, Shows, argument};
use crate::op::Op;

#[cfg(feature = "soft")]
use crate::draw::Draw;

const WILLNEED: u64 = 3;
const DONTNEED: u64 = 4;
const COLD: u64 = 20;
const PAGEOUT: u64 = 21;
/// `MADV_POPULATE_WRITE`.
pub const POPULATE_WRITE: u64 = 23;
/// `MADV_COLLAPSE`.
pub const COLLAPSE: u64 = 25;
const GUARD_INSTALL: u64 = 102;
const GUARD_REMOVE: u64 = 103;
#[cfg(feature = "soft")]
const LONG: u64 = 1 << 30;

const ADVICE: &[(&str, u64)] = &[
    ("normal", 0),
    ("random", 1),
    ("sequential", 2),
    ("willneed", WILLNEED),
    ("dontneed", DONTNEED),
    ("free", 8),
    ("remove", 9),
    ("dontfork", 10),
    ("dofork", 11),
    ("mergeable", 12),
    ("unmergeable", 13),
    ("hugepage", 14),
    ("nohugepage", 15),
    ("dontdump", 16),
    ("dodump", 17),
    ("wipeonfork", 18),
    ("keeponfork", 19),
    ("cold", COLD),
    ("pageout", PAGEOUT),
    ("populate_read", 22),
    ("populate_write", POPULATE_WRITE),
    ("dontneed_locked", 24),
    ("collapse", COLLAPSE),
    ("hwpoison", 100),
    ("soft_offline", 101),
    ("guard_install", GUARD_INSTALL),
    ("guard_remove", GUARD_REMOVE),
];

pub static MADVISE: Kind = Kind {
    name: "madvise",
    arguments: &[ADDRESS, LENGTH, argument("advice", Meaning::Choice(ADVICE))],
    weights: [3, 3, 1],
    stays: true,
    #[cfg(feature = "soft")]
    draw: |draw| {
        if draw.pages_out() && draw.chance(2, 3) {
            let (address, length) = draw.used_range();
            let advice = draw.pick(&[(10, PAGEOUT), (2, WILLNEED), (1, COLD), (3, POPULATE_WRITE)]);
            return [address, length, advice, 0, 0, 0];
        }
        if draw.is_huge() && !draw.is_beside() && draw.chance(1, 2) {
            let (address, length) = draw.range();
            let advice = draw.pick(&[
                (6, COLLAPSE),
                (2, 14),
                (1, 15),
                (3, DONTNEED),
                (1, 8),
                (1, COLD),
            ]);
            return [address, length, advice, 0, 0, 0];
        }
        let (address, length) = draw.range_or_beyond();
        let advice = match length {
            // So long a range is compared for these only: others take too long.
            LONG | u64::MAX => draw.pick(&[(1, 0), (1, DONTNEED)]),
            // This may reach other mappings of the process.
            length if length > 1 << 29 => 0,
            _ => advice(draw),
        };
        [address, length, advice, 0, 0, 0]
    },
    act: Act::Call {
        number: libc::SYS_madvise,
        shows: Shows::Number,
        #[cfg(feature = "soft")]
        soft: |here, &[address, length, advice, ..]| {
            let result = here.space().madvise(address, length, advice as i32);
            result.map(|()| 0)
        },
    },
};

pub static PROCESS_MADVISE: Kind = Kind {
    name: "process_madvise",
    arguments: &[ADDRESS, LENGTH, argument("advice", Meaning::Choice(ADVICE))],
    weights: [1, 0, 0],
    stays: false,
    #[cfg(feature = "soft")]
    draw: |draw| {
        let (address, length) = match draw.pages_out() {
            true => draw.used_range(),
            false => draw.range(),
        };
        let out = if draw.pages_out() { 8 } else { 0 };
        let advice = draw.pick(&[
            (4, WILLNEED),
            (4, COLD),
            (out, PAGEOUT),
            (1, 25),
            (1, DONTNEED),
            (1, 0),
            (1, 1000),
        ]);
        [address, length, advice, 0, 0, 0]
    },
    act: Act::Own(|on, &[address, length, advice, ..], line| {
        let _ = match on.process_madvise(address, length, advice) {
            Ok(bytes) => write!(line, "{bytes:#x}"),
            Err(errno) => write!(line, "errno {errno}"),
        };
    }),
};

/// Whether the advice exists in Linux only since 6.13.
#[cfg(feature = "soft")]
pub fn is_guard(kind: &Kind, advice: u64) -> bool {
    kind.name == "madvise" && matches!(advice, GUARD_INSTALL | GUARD_REMOVE)
}

/// Whether an operation pages memory out.
pub fn pages_out(op: &Op) -> bool {
    advises(op, PAGEOUT)
}

/// Whether an operation brings memory back.
#[cfg(feature = "soft")]
pub fn is_needed_soon(op: &Op) -> bool {
    advises(op, WILLNEED)
}

fn advises(op: &Op, advice: u64) -> bool {
    matches!(op.kind().name, "madvise" | "process_madvise") && op.arguments[2] == advice
}

#[cfg(feature = "soft")]
fn advice(draw: &mut Draw) -> u64 {
    // What is paged out is freed at once: see the table of differences.
    let (free, out) = if draw.pages_out() { (0, 4) } else { (3, 0) };
    draw.pick(&[
        (10, DONTNEED),
        (4, 22),
        (4, POPULATE_WRITE),
        (1, 0),
        (1, WILLNEED),
        (1, 1),
        (1, 2),
        (2, 10),
        (2, 11),
        (2, 18),
        (2, 19),
        (1, 16),
        (1, 17),
        (2, 24),
        (free, 8),
        (3, 9),
        (1, 12),
        (1, 13),
        (1, 14),
        (1, 15),
        (1, COLD),
        (out, PAGEOUT),
        (1, 25),
        (2, GUARD_INSTALL),
        (1, GUARD_REMOVE),
        (1, u64::from(u32::MAX)),
        (1, 1000),
    ])
}
