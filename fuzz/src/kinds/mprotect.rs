//! `mprotect`.

use crate::kind::{ADDRESS, Act, Kind, LENGTH, Meaning, Shows, argument};

#[cfg(feature = "soft")]
use crate::draw::Draw;

const BITS: &[(&str, u64)] = &[
    ("read", 1),
    ("write", 2),
    ("exec", 4),
    ("sem", 8),
    ("growsdown", 0x100_0000),
    ("growsup", 0x200_0000),
];

pub static MPROTECT: Kind = Kind {
    name: "mprotect",
    arguments: &[ADDRESS, LENGTH, argument("prot", Meaning::Bits(BITS))],
    weights: [3, 3, 1],
    stays: true,
    #[cfg(feature = "soft")]
    draw: |draw| {
        let (address, length) = draw.range_or_beyond();
        [address, length, prot(draw), 0, 0, 0]
    },
    act: Act::Call {
        number: libc::SYS_mprotect,
        shows: Shows::Number,
        #[cfg(feature = "soft")]
        soft: |here, &[address, length, prot, ..]| {
            let result = here.space().mprotect(address, length, prot as u32);
            result.map(|()| 0)
        },
    },
};

/// Never `PROT_GROWSDOWN` alone, and of unknown bits none that is AArch64's: see the table of differences.
#[cfg(feature = "soft")]
fn prot(draw: &mut Draw) -> u64 {
    let more = draw.pick(&[(20, 0), (1, 0x200_0000), (1, 0x300_0000), (1, 0x40), (1, 8)]);
    draw.prot() | more
}
