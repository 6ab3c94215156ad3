//! `msync`.

use crate::kind::{ADDRESS, Act, Kind, LENGTH, Meaning, Shows, argument};

const FLAGS: &[(&str, u64)] = &[("async", 1), ("invalidate", 2), ("sync", 4)];

pub static MSYNC: Kind = Kind {
    name: "msync",
    arguments: &[ADDRESS, LENGTH, argument("flags", Meaning::Bits(FLAGS))],
    weights: [1, 1, 1],
    stays: true,
    #[cfg(feature = "soft")]
    draw: |draw| {
        let (address, length) = draw.range_or_beyond();
        let flags = draw.pick(&[
            (4, 4),
            (2, 1),
            (2, 6),
            (1, 2),
            (1, 3),
            (1, 5),
            (1, 0),
            (1, 8),
        ]);
        [address, length, flags, 0, 0, 0]
    },
    act: Act::Call {
        number: libc::SYS_msync,
        shows: Shows::Number,
        #[cfg(feature = "soft")]
        soft: |here, &[address, length, flags, ..]| {
            let result = here.space().msync(address, length, flags as u32);
            result.map(|()| 0)
        },
    },
};
