//! `setrlimit` of what may be mapped and locked, counted from what is, and of how far stacks grow.

use std::fmt::Write as _;

use crate::kind::{Act, Kind, Meaning, argument};
use crate::memory::Limited;
use crate::op::Op;

const WHAT: &[(&str, u64)] = &[("mapped", 0), ("data", 1), ("stack", 2), ("locked", 3)];

pub static LIMIT: Kind = Kind {
    name: "limit",
    arguments: &[
        argument("what", Meaning::Choice(WHAT)),
        argument("more", Meaning::Number),
    ],
    // What counts of a heap depends on the program's data.
    weights: [1, 1, 0],
    stays: false,
    #[cfg(feature = "soft")]
    draw: |draw| {
        let more = match draw.below(6) {
            0..3 => draw.below(20),
            3 => 20 + draw.below(180),
            _ => u64::MAX,
        };
        // With `mlockall` all that the process has counts, which differs from system to system.
        let kinds = 3 + u64::from(draw.locks() && !draw.locks_all());
        [draw.below(kinds), more, 0, 0, 0, 0]
    },
    act: Act::Own(|on, &[what, more, ..], line| {
        let _ = match on.limit(named(what), more) {
            Ok(()) => write!(line, "limited"),
            Err(errno) => write!(line, "errno {errno}"),
        };
    }),
};

/// What an operation limits, if it does.
pub fn limited(op: &Op) -> Option<Limited> {
    (op.kind().name == LIMIT.name).then(|| named(op.arguments[0]))
}

fn named(what: u64) -> Limited {
    match what {
        0 => Limited::Mapped,
        1 => Limited::Data,
        2 => Limited::Stack,
        _ => Limited::Locked,
    }
}
