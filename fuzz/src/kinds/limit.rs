//! `setrlimit` of mapped and locked memory, relative to the present amount, and of the growth of stacks.

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
    // How much of a heap counts depends on the program's data.
    weights: [1, 1, 0],
    stays: false,
    #[cfg(feature = "soft")]
    draw: |draw| {
        let more = match draw.below(6) {
            0..3 => draw.below(20),
            3 => 20 + draw.below(180),
            _ => u64::MAX,
        };
        // With `mlockall` all memory of the process counts, which differs between systems.
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

/// The limit that an operation sets, if any.
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
