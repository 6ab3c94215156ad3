//! `brk`, which returns the end of the heap, changed or not.

use std::fmt::Write as _;

use crate::address::{Shown, told};
use crate::kind::{ADDRESS, Act, Kind};

#[cfg(feature = "soft")]
use crate::address::{HEAP, PAGE};
#[cfg(feature = "soft")]
use crate::draw::Draw;

pub static BRK: Kind = Kind {
    name: "brk",
    arguments: &[ADDRESS],
    weights: [0, 0, 10],
    stays: false,
    #[cfg(feature = "soft")]
    draw: |draw| [end(draw), 0, 0, 0, 0, 0],
    act: Act::Own(|on, &[address, ..], line| {
        let end = on.brk(address);
        let _ = write!(line, "{}", Shown(told(end, on.heap(), on.scene())));
    }),
};

#[cfg(feature = "soft")]
fn end(draw: &mut Draw) -> u64 {
    match draw.below(14) {
        0..8 => draw.page(),
        8..12 => draw.page() + 1 + draw.below(PAGE - 1),
        12 if !draw.locks_all() => HEAP + draw.pick(&[(1, 256 * PAGE), (1, 1 << 21), (1, 1 << 29)]),
        12 => HEAP,
        // Far below the heap (just below it may be the C library's), and beyond all addresses.
        _ => draw.pick(&[(1, HEAP - (1 << 40)), (1, 1 << 47)]),
    }
}
