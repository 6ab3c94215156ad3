//! `membarrier`: which commands need a registration, and which are registered. Litmus tests elsewhere show
//! that the barriers are barriers.

use crate::kind::{Act, Kind, Meaning, Shows, argument};

const COMMANDS: &[(&str, u64)] = &[
    ("global", 1),
    ("global_expedited", 2),
    ("register_global_expedited", 4),
    ("private_expedited", 8),
    ("register_private_expedited", 0x10),
    ("sync_core", 0x20),
    ("register_sync_core", 0x40),
    ("get_registrations", 0x200),
];

pub static MEMBARRIER: Kind = Kind {
    name: "membarrier",
    arguments: &[
        argument("command", Meaning::Choice(COMMANDS)),
        argument("flags", Meaning::Number),
    ],
    weights: [1, 1, 1],
    stays: false,
    #[cfg(feature = "soft")]
    draw: |draw| {
        // No query of the supported commands, and no restartable sequences: see the table of differences.
        let command = draw.pick(&[
            (1, 1),
            (4, 2),
            (2, 4),
            (4, 8),
            (2, 0x10),
            (4, 0x20),
            (1, 0x40),
            (4, 0x200),
            (1, 3),
            (1, 0x400),
        ]);
        [command, draw.pick(&[(12, 0), (1, 2)]), 0, 0, 0, 0]
    },
    act: Act::Call {
        number: libc::SYS_membarrier,
        shows: Shows::Number,
        #[cfg(feature = "soft")]
        soft: |here, &[command, flags, ..]| here.barriers.call(command, flags),
    },
};
