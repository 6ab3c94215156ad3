//! `mlock` and related calls. Only programs that set a limit of locked memory are limited.

use crate::kind::{ADDRESS, Act, Kind, LENGTH, Meaning, Shows, argument};

#[cfg(feature = "soft")]
use crate::draw::Draw;

const ONFAULT: &[(&str, u64)] = &[("onfault", 1)];
const ALL: &[(&str, u64)] = &[("current", 1), ("future", 2), ("onfault", 4)];

pub static MLOCK: Kind = Kind {
    name: "mlock",
    arguments: &[ADDRESS, LENGTH],
    weights: [2, 2, 2],
    stays: true,
    #[cfg(feature = "soft")]
    draw: range,
    act: Act::Call {
        number: libc::SYS_mlock,
        shows: Shows::Number,
        #[cfg(feature = "soft")]
        soft: |here, &[address, length, ..]| here.space().mlock(address, length, 0).map(|()| 0),
    },
};

pub static MLOCK2: Kind = Kind {
    name: "mlock2",
    arguments: &[ADDRESS, LENGTH, argument("flags", Meaning::Bits(ONFAULT))],
    weights: [2, 2, 2],
    stays: true,
    #[cfg(feature = "soft")]
    draw: |draw| {
        let [address, length, ..] = range(draw);
        let flags = draw.pick(&[(8, 1), (2, 0), (1, 2)]);
        [address, length, flags, 0, 0, 0]
    },
    act: Act::Call {
        number: libc::SYS_mlock2,
        shows: Shows::Number,
        #[cfg(feature = "soft")]
        soft: |here, &[address, length, flags, ..]| {
            let result = here.space().mlock(address, length, flags as u32);
            result.map(|()| 0)
        },
    },
};

pub static MUNLOCK: Kind = Kind {
    name: "munlock",
    arguments: &[ADDRESS, LENGTH],
    weights: [2, 2, 2],
    stays: true,
    #[cfg(feature = "soft")]
    draw: range,
    act: Act::Call {
        number: libc::SYS_munlock,
        shows: Shows::Number,
        #[cfg(feature = "soft")]
        soft: |here, &[address, length, ..]| here.space().munlock(address, length).map(|()| 0),
    },
};

pub static MLOCKALL: Kind = Kind {
    name: "mlockall",
    arguments: &[argument("flags", Meaning::Bits(ALL))],
    weights: [1, 0, 1],
    stays: false,
    #[cfg(feature = "soft")]
    draw: |draw| {
        let flags = draw.pick(&[(2, 1), (3, 2), (2, 6), (2, 3), (1, 4), (1, 0), (1, 10)]);
        [flags, 0, 0, 0, 0, 0]
    },
    act: Act::Call {
        number: libc::SYS_mlockall,
        shows: Shows::Number,
        #[cfg(feature = "soft")]
        soft: |here, &[flags, ..]| here.space().mlockall(flags as u32).map(|()| 0),
    },
};

pub static MUNLOCKALL: Kind = Kind {
    name: "munlockall",
    arguments: &[],
    weights: [1, 0, 1],
    stays: false,
    #[cfg(feature = "soft")]
    draw: |_| [0; 6],
    act: Act::Call {
        number: libc::SYS_munlockall,
        shows: Shows::Number,
        #[cfg(feature = "soft")]
        soft: |here, _| {
            here.space().munlockall();
            Ok(0)
        },
    },
};

#[cfg(feature = "soft")]
fn range(draw: &mut Draw) -> [u64; 6] {
    let (address, length) = draw.range();
    [address, length, 0, 0, 0, 0]
}
