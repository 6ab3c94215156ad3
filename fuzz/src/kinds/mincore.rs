//! `mincore`.

use std::fmt::Write as _;

use crate::kind::{ADDRESS, Act, Kind, LENGTH};

pub static MINCORE: Kind = Kind {
    name: "mincore",
    arguments: &[ADDRESS, LENGTH],
    weights: [1, 1, 1],
    stays: true,
    #[cfg(feature = "soft")]
    draw: |draw| {
        let (address, length) = draw.range();
        [address, length, 0, 0, 0, 0]
    },
    act: Act::Own(
        |on, &[address, length, ..], line| match on.mincore(address, length) {
            Ok(bytes) => line.runs(bytes.iter().copied()),
            Err(errno) => {
                let _ = write!(line, "errno {errno}");
            }
        },
    ),
};
