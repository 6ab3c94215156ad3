//! Operations on mapped files: a new size, holes, reads and writes beside the
//! mappings.

use std::fmt::Write as _;

use crate::kind::{Act, FILE, Kind, LENGTH, Meaning, Shows, argument};

#[cfg(feature = "soft")]
use crate::address::PAGE;
#[cfg(feature = "soft")]
use crate::draw::Draw;

const MODES: &[(&str, u64)] = &[("keep_size", 1), ("punch_hole", 2), ("zero_range", 0x10)];

pub static FTRUNCATE: Kind = Kind {
    name: "ftruncate",
    arguments: &[FILE, LENGTH],
    weights: [4, 4, 4],
    stays: false,
    #[cfg(feature = "soft")]
    draw: |draw| [draw.file(), size(draw), 0, 0, 0, 0],
    act: Act::Call {
        number: libc::SYS_ftruncate,
        shows: Shows::Number,
        #[cfg(feature = "soft")]
        soft: |here, &[file, length, ..]| here.files.truncate(file, length).map(|()| 0),
    },
};

pub static FALLOCATE: Kind = Kind {
    name: "fallocate",
    arguments: &[
        FILE,
        argument("mode", Meaning::Bits(MODES)),
        argument("offset", Meaning::Length),
        LENGTH,
    ],
    weights: [3, 3, 3],
    stays: false,
    #[cfg(feature = "soft")]
    draw: |draw| {
        // No mode that reserves memory: see the table of differences.
        let mode = draw.pick(&[(8, 3), (1, 2), (1, 0x10)]);
        let length = match mode {
            3 if draw.chance(1, 8) => draw.odd(),
            _ => size(draw).min(64 * PAGE),
        };
        [draw.file(), mode, draw.offset(), length, 0, 0]
    },
    act: Act::Call {
        number: libc::SYS_fallocate,
        shows: Shows::Number,
        #[cfg(feature = "soft")]
        soft: |here, &[file, mode, offset, length, ..]| {
            here.files.allocate(file, mode, offset, length).map(|()| 0)
        },
    },
};

pub static PREAD: Kind = Kind {
    name: "pread",
    arguments: &[FILE, argument("offset", Meaning::Length)],
    weights: [3, 3, 3],
    stays: false,
    #[cfg(feature = "soft")]
    draw: |draw| [draw.file(), word(draw), 0, 0, 0, 0],
    act: Act::Own(|on, &[file, offset, ..], line| {
        let mut word = [0];
        let _ = match on.read(file, offset, &mut word) {
            Ok(count) => write!(line, "{count} bytes: {:#x}", word[0]),
            Err(errno) => write!(line, "errno {errno}"),
        };
    }),
};

pub static PWRITE: Kind = Kind {
    name: "pwrite",
    arguments: &[
        FILE,
        argument("offset", Meaning::Length),
        argument("value", Meaning::Number),
    ],
    weights: [4, 4, 4],
    stays: false,
    #[cfg(feature = "soft")]
    draw: |draw| {
        let value = 1 + draw.below(u64::from(u32::MAX));
        [draw.file(), word(draw), value, 0, 0, 0]
    },
    act: Act::Own(|on, &[file, offset, value, ..], line| {
        let _ = match on.write(file, offset, value) {
            Ok(count) => write!(line, "{count}"),
            Err(errno) => write!(line, "errno {errno}"),
        };
    }),
};

/// The offset of a word in a file; a word does not cross pages.
#[cfg(feature = "soft")]
fn word(draw: &mut Draw) -> u64 {
    let page = draw.below(12) * PAGE;
    page + draw.pick(&[(4, 0), (2, 64), (2, PAGE - 8), (1, 2048)])
}

/// The size of a file: usually a few pages, not always whole ones.
#[cfg(feature = "soft")]
fn size(draw: &mut Draw) -> u64 {
    match draw.below(20) {
        0..11 => draw.below(12) * PAGE,
        11..15 => draw.below(12 * PAGE),
        15..17 => draw.below(64) * PAGE,
        17 => 1 << 40,
        18 => 0,
        _ => draw.odd(),
    }
}
