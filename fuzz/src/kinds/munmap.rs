//! `munmap`.

use crate::kind::{ADDRESS, Act, Kind, LENGTH, Shows};

pub static MUNMAP: Kind = Kind {
    name: "munmap",
    arguments: &[ADDRESS, LENGTH],
    weights: [3, 3, 2],
    stays: true,
    #[cfg(feature = "soft")]
    draw: |draw| {
        let (address, length) = draw.range_or_beyond();
        [address, length, 0, 0, 0, 0]
    },
    act: Act::Call {
        number: libc::SYS_munmap,
        shows: Shows::Number,
        #[cfg(feature = "soft")]
        soft: |here, &[address, length, ..]| here.space().munmap(address, length).map(|()| 0),
    },
};
