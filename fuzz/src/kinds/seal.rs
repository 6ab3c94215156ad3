//! `mseal`.

use crate::kind::{ADDRESS, Act, Kind, LENGTH, Meaning, Shows, argument};

pub static MSEAL: Kind = Kind {
    name: "mseal",
    arguments: &[ADDRESS, LENGTH, argument("flags", Meaning::Number)],
    weights: [1, 0, 1],
    stays: true,
    #[cfg(feature = "soft")]
    draw: |draw| {
        let (address, length) = draw.range();
        [address, length, draw.pick(&[(12, 0), (1, 1)]), 0, 0, 0]
    },
    act: Act::Call {
        number: libc::SYS_mseal,
        shows: Shows::Number,
        #[cfg(feature = "soft")]
        soft: |here, &[address, length, flags, ..]| {
            let result = here.space().mseal(address, length, flags);
            result.map(|()| 0)
        },
    },
};
