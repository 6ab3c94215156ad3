//! Soft-dirty bits: clears all of them (4 in `/proc/self/clear_refs`), stores one word, and reads
//! from `/proc/self/pagemap` which pages were written.
//!
//! All in one operation: a mapping made in between would make the mapping that it merges with count as
//! written, and Linux merges other mappings than ours.

use std::fmt::Write as _;

use crate::address::PAGE;
use crate::kind::{ADDRESS, Act, Kind, Meaning, argument};
use crate::op::show_signal;

/// The most pages that are checked.
const MOST: usize = 64;

pub static SOFT_DIRTY: Kind = Kind {
    name: "soft_dirty",
    arguments: &[
        ADDRESS,
        argument("pages", Meaning::Number),
        argument("value", Meaning::Number),
    ],
    weights: [2, 2, 2],
    stays: false,
    #[cfg(feature = "soft")]
    draw: |draw| {
        let pages = draw.pick(&[(3, 1), (3, 8), (1, MOST as u64)]);
        let value = 1 + draw.below(u64::from(u32::MAX));
        [draw.word(), pages, value, 0, 0, 0]
    },
    act: Act::Own(|on, &[address, pages, value, ..], line| {
        if let Err(errno) = on.clear_soft_dirty() {
            let _ = write!(line, "errno {errno}");
            return;
        }
        match on.store(address, value) {
            Ok(()) => {}
            Err(signal) => {
                show_signal(on, signal, line);
                let _ = line.write_str(": ");
            }
        }
        let mut there = [0u8; MOST];
        let pages = (pages as usize).min(MOST);
        match on.soft_dirty(address & !(PAGE - 1), &mut there[..pages]) {
            Ok(()) => line.runs(there[..pages].iter().copied()),
            Err(errno) => {
                let _ = write!(line, "errno {errno}");
            }
        }
    }),
};
