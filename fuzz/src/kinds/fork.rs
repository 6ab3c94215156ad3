//! `fork`, and the operation that does nothing.

use crate::kind::{Act, Kind, Meaning, argument};

/// Makes the process of this number. The generator of programs inserts it.
pub static FORK: Kind = Kind {
    name: "fork",
    arguments: &[argument("process", Meaning::Number)],
    weights: [0; 3],
    stays: false,
    #[cfg(feature = "soft")]
    draw: |_| [0; 6],
    act: Act::Fork,
};

/// Stands for an operation that another system left out.
pub static NOTHING: Kind = Kind {
    name: "nothing",
    arguments: &[],
    weights: [0; 3],
    stays: true,
    #[cfg(feature = "soft")]
    draw: |_| [0; 6],
    act: Act::Nothing,
};
