//! An access, and the number of its faults, where that is defined.
//!
//! The number is defined if it is the same on every Linux, whatever its caches hold. That is true for private
//! memory without a file, and where nothing is mapped; elsewhere a fault maps cached pages around it. Fork copies
//! no tables of a mapping that was never written, so in a child loads may or may not find the parent's zero
//! pages, and only stores are counted. Programs with huge pages count none.

use std::fmt::Write as _;

use crate::kind::{ADDRESS, Act, Kind, Meaning, argument};
use crate::memory::{Faults, Memory};
use crate::op::show_signal;

pub static FAULTS: Kind = Kind {
    name: "faults",
    arguments: &[ADDRESS, argument("value", Meaning::Number)],
    weights: [3, 3, 2],
    // It reads all mappings.
    stays: false,
    #[cfg(feature = "soft")]
    draw: |draw| {
        let value = match draw.chance(1, 2) {
            true => 0,
            false => 1 + draw.below(u64::from(u32::MAX)),
        };
        [draw.word(), value, 0, 0, 0, 0]
    },
    act: Act::Own(|on, &[address, value, ..], line| {
        let to_store = (value != 0).then_some(value);
        let counts = has_counts(on, address, to_store.is_some());
        let mut faults = Faults::default();
        let _ = match on.counted(address, to_store, &mut faults) {
            Ok(value) => write!(line, "{value:#x}"),
            Err(signal) => {
                show_signal(on, signal, line);
                Ok(())
            }
        };
        if counts {
            let Faults { minor, major } = faults;
            let _ = write!(line, " after {minor} minor and {major} major");
        }
    }),
};

/// Whether an access to `address` takes the same faults on every system.
fn has_counts(on: &mut dyn Memory, address: u64, stores: bool) -> bool {
    let mut is_plain = true;
    on.maps(address + 1, &mut |mapping| {
        if (mapping.start..mapping.end).contains(&address) {
            is_plain = !mapping.shared && mapping.file.is_none();
        }
    });
    is_plain && (stores || !on.is_forked())
}
