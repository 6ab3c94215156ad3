//! `mremap`.

use std::fmt::Write as _;

use crate::kind::{ADDRESS, Act, Kind, LENGTH, Meaning, Shows, argument};
use crate::memory::{Mapping, Memory};
use crate::op::{LEFT_OUT, show};

#[cfg(feature = "soft")]
use crate::address::{PAGE, Scene};
#[cfg(feature = "soft")]
use crate::draw::Draw;

const MAYMOVE: u64 = 1;
const FIXED: u64 = 2;
const DONTUNMAP: u64 = 4;

const FLAGS: &[(&str, u64)] = &[
    ("maymove", MAYMOVE),
    ("fixed", FIXED),
    ("dontunmap", DONTUNMAP),
];

pub static MREMAP: Kind = Kind {
    name: "mremap",
    arguments: &[
        ADDRESS,
        argument("old_length", Meaning::Length),
        LENGTH,
        argument("flags", Meaning::Bits(FLAGS)),
        argument("to", Meaning::Address),
    ],
    weights: [3, 3, 0],
    stays: false,
    #[cfg(feature = "soft")]
    draw,
    act: Act::Own(|on, arguments, line| {
        let result = on.call(&CALL, arguments);
        let [old, old_length, ..] = *arguments;
        if result == Err(libc::EFAULT) && has_seam(on, old, old.saturating_add(old_length)) {
            let _ = write!(line, "{LEFT_OUT}: kept apart");
        } else {
            show(on, Shows::Place { length: 2 }, arguments, result, line);
        }
    }),
};

const CALL: Act = Act::Call {
    number: libc::SYS_mremap,
    shows: Shows::Place { length: 2 },
    #[cfg(feature = "soft")]
    soft: |here, &[old, old_length, length, flags, to, _]| {
        let space = here.space();
        space.mremap(old, old_length, length, flags as u32, to)
    },
};

/// Whether neighbours in this range are not merged although they look the same.
fn has_seam(on: &mut dyn Memory, start: u64, end: u64) -> bool {
    let mut last: Option<Mapping> = None;
    let mut found = false;
    on.maps(end, &mut |line| {
        found |= last.is_some_and(|last| {
            last.end == line.start
                && line.start > start
                && (last.prot, last.shared) == (line.prot, line.shared)
        });
        last = Some(line);
    });
    found
}

#[cfg(feature = "soft")]
fn draw(draw: &mut Draw) -> [u64; 6] {
    let stays = u32::from(!draw.locks());
    let flags = draw.pick(&[
        (2, 0),
        (2, MAYMOVE),
        (6, MAYMOVE | FIXED),
        (2 * stays, MAYMOVE | DONTUNMAP),
        (2 * stays, MAYMOVE | FIXED | DONTUNMAP),
        (1, FIXED),
        (1, DONTUNMAP),
        (1, 8),
    ]);
    let (old_length, length) = match draw.below(8) {
        0..2 => {
            let length = draw.length();
            (length, length)
        }
        2..5 => (draw.length(), draw.length()),
        _ => ((1 + draw.below(5)) * PAGE, (1 + draw.below(11)) * PAGE),
    };
    // A mapping that moved is often moved again.
    let address = if draw.chance(1, 2) {
        draw.mapped()
    } else {
        draw.address()
    };
    let to = draw.address();
    let length = if draw.scene() == Scene::Sealed {
        draw.inside(to, draw.inside(address, length))
    } else {
        length
    };
    [
        address,
        draw.inside(address, old_length),
        length,
        flags,
        to,
        0,
    ]
}
