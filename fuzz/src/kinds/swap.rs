//! `swapoff` and `swapon` of the system's swap device, where programs may do that.
//!
//! Elsewhere, as on the host, the operation does nothing and gives the same answer: what it may not change is the content
//! of memory.

use std::fmt::Write as _;

use crate::kind::{Act, Kind, Meaning, argument};

const STATE: &[(&str, u64)] = &[("off", 0), ("on", 1)];

pub static SWAP: Kind = Kind {
    name: "swap",
    arguments: &[argument("state", Meaning::Choice(STATE))],
    weights: [2, 2, 2],
    // It works on all memory.
    stays: false,
    #[cfg(feature = "soft")]
    draw: |draw| [draw.below(2), 0, 0, 0, 0, 0],
    act: Act::Own(|on, &[state, ..], line| {
        let is_on = state != 0;
        let _ = match (on.swap(is_on), is_on) {
            // The device may have that state already.
            (Ok(()) | Err(libc::EINVAL), false) => write!(line, "off"),
            (Ok(()) | Err(libc::EBUSY), true) => write!(line, "on"),
            (Err(errno), _) => write!(line, "errno {errno}"),
        };
    }),
};
