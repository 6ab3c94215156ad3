//! Loads and stores of a word.

use std::fmt::Write as _;

use crate::kind::{ADDRESS, Act, Kind, Meaning, argument};
use crate::op::show_signal;

pub static LOAD: Kind = Kind {
    name: "load",
    arguments: &[ADDRESS],
    weights: [4, 4, 3],
    stays: true,
    #[cfg(feature = "soft")]
    draw: |draw| [draw.word(), 0, 0, 0, 0, 0],
    act: Act::Own(|on, &[address, ..], line| {
        let _ = match on.load(address) {
            Ok(value) => write!(line, "{value:#x}"),
            Err(signal) => {
                show_signal(on, signal, line);
                Ok(())
            }
        };
    }),
};

pub static STORE: Kind = Kind {
    name: "store",
    arguments: &[ADDRESS, argument("value", Meaning::Number)],
    weights: [8, 8, 6],
    stays: true,
    #[cfg(feature = "soft")]
    draw: |draw| [draw.word(), draw.value(), 0, 0, 0, 0],
    act: Act::Own(|on, &[address, value, ..], line| {
        let _ = match on.store(address, value) {
            Ok(()) => write!(line, "stored"),
            Err(signal) => {
                show_signal(on, signal, line);
                Ok(())
            }
        };
    }),
};
