//! Random operations for scripts, edge cases included.

use faultless_mm::{Layout, advice, flags, lock_all_flags, lock_flags, remap_flags};
use proptest::prelude::*;

use crate::script::{Limit, Op, PAGE, WORDS, Window};

/// An address at which slots of every level of the tree, and tables, begin.
const CENTRE: u64 = 1 << 36;
const NEAR: u64 = 330;
const LOCKED: u32 = flags::LOCKED;

/// Pages around the centre are compared one by one, mappings in a far wider range.
pub const OPEN: Window = Window {
    start: CENTRE - (8 << 30),
    end: CENTRE + (8 << 30),
    first: CENTRE - NEAR * PAGE,
    last: CENTRE + NEAR * PAGE,
};

/// The only free part of the address space.
pub const SEALED: Window = Window {
    start: CENTRE - NEAR * PAGE,
    end: CENTRE + NEAR * PAGE,
    first: CENTRE - NEAR * PAGE,
    last: CENTRE + NEAR * PAGE,
};

/// A page of the window, near its middle more often than not.
fn page() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => NEAR - 8..NEAR + 8,
        2 => NEAR - 70..NEAR + 70,
        2 => 0..2 * NEAR,
    ]
    .prop_map(|page| CENTRE - NEAR * PAGE + page * PAGE)
}

/// An address, mostly that of a page.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        30 => page(),
        1 => (page(), 1..PAGE).prop_map(|(page, offset)| page + offset),
    ]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![
        20 => (1..8u64).prop_map(|pages| pages * PAGE),
        8 => (1..200u64).prop_map(|pages| pages * PAGE),
        2 => 1..9 * PAGE,
        1 => Just(0),
    ]
}

/// Lengths and addresses that leave the window, or every address space.
fn odd() -> impl Strategy<Value = u64> {
    let task = Layout::LINUX_X86_64.end;
    prop_oneof![
        Just(0),
        Just(1),
        Just(1 << 30),
        Just(task),
        Just(task + 1),
        Just(task - CENTRE + (NEAR + 1) * PAGE),
        Just(task - PAGE),
        Just(u64::MAX),
        Just(u64::MAX - PAGE + 1),
        Just(u64::MAX - CENTRE),
        Just(u64::MAX - CENTRE + 1),
        Just(1 << 47),
        Just(1 << 63),
    ]
}

fn prot() -> impl Strategy<Value = u32> {
    let execute_only = std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|t| t.contains(" ospke"));
    prop_oneof![
        12 => Just(3),
        4 => Just(1),
        2 => Just(0),
        1 => Just(2),
        1 => Just(if execute_only { 5 } else { 4 }),
        1 => Just(5),
        1 => Just(7),
    ]
}

fn map_flags() -> impl Strategy<Value = u32> {
    let place = prop_oneof![
        3 => Just(0),
        4 => Just(flags::FIXED),
        1 => Just(flags::FIXED_NOREPLACE),
        1 => Just(flags::FIXED | flags::FIXED_NOREPLACE),
    ];
    let kind = prop_oneof![
        20 => Just(0),
        3 => Just(flags::NORESERVE),
        3 => Just(flags::POPULATE),
        1 => Just(flags::POPULATE | flags::NONBLOCK),
        5 => Just(flags::GROWSDOWN),
        1 => Just(flags::GROWSDOWN | flags::POPULATE),
    ];
    let which = prop_oneof![
        40 => Just(flags::PRIVATE),
        12 => Just(flags::SHARED),
        1 => Just(flags::SHARED_VALIDATE),
        1 => Just(0),
    ];
    (place, kind, which).prop_map(|(place, kind, which)| place | kind | which | flags::ANONYMOUS)
}

fn protect_bits() -> impl Strategy<Value = u32> {
    prop_oneof![
        20 => prot(),
        1 => prot().prop_map(|p| p | 0x0200_0000),
        1 => prot().prop_map(|p| p | 0x0300_0000),
        1 => prot().prop_map(|p| p | 0x10),
        1 => prot().prop_map(|p| p | 8),
    ]
}

/// Whether this Linux knows the advice: guards exist since 6.13.
fn is_known_here(what: i32) -> bool {
    // SAFETY: the range is empty.
    unsafe { libc::madvise(std::ptr::null_mut(), 0, what) == 0 }
}

fn what() -> impl Strategy<Value = i32> {
    let has_guards = is_known_here(advice::GUARD_INSTALL);
    let unless_old = |what| if has_guards { what } else { advice::DONTNEED };
    prop_oneof![
        5 => Just(advice::DONTNEED),
        2 => Just(advice::POPULATE_READ),
        2 => Just(advice::POPULATE_WRITE),
        1 => prop_oneof![Just(advice::NORMAL), Just(advice::WILLNEED)],
        1 => prop_oneof![Just(advice::RANDOM), Just(advice::SEQUENTIAL)],
        2 => prop_oneof![Just(advice::DONTFORK), Just(advice::DOFORK)],
        2 => prop_oneof![Just(advice::WIPEONFORK), Just(advice::KEEPONFORK)],
        1 => prop_oneof![Just(advice::DONTDUMP), Just(advice::DODUMP)],
        1 => Just(advice::DONTNEED_LOCKED),
        2 => Just(advice::FREE),
        2 => Just(unless_old(advice::GUARD_INSTALL)),
        1 => Just(unless_old(advice::GUARD_REMOVE)),
        1 => prop_oneof![Just(advice::HUGEPAGE), Just(advice::NOHUGEPAGE)],
        1 => prop_oneof![Just(advice::MERGEABLE), Just(advice::UNMERGEABLE)],
        1 => prop_oneof![Just(advice::COLD), Just(advice::COLLAPSE)],
        2 => Just(advice::REMOVE),
        1 => Just(-1),
        1 => Just(1000),
    ]
}

fn remap() -> impl Strategy<Value = Op> {
    const MAYMOVE: u32 = remap_flags::MAYMOVE;
    let flags = prop_oneof![
        2 => Just(0),
        2 => Just(MAYMOVE),
        6 => Just(MAYMOVE | remap_flags::FIXED),
        2 => Just(MAYMOVE | remap_flags::DONTUNMAP),
        2 => Just(MAYMOVE | remap_flags::FIXED | remap_flags::DONTUNMAP),
        1 => Just(remap_flags::FIXED),
        1 => Just(remap_flags::DONTUNMAP),
        1 => Just(8),
    ];
    let lengths = prop_oneof![
        2 => length().prop_map(|length| (length, length)),
        3 => (length(), length()),
        3 => (1..6u64, 1..12u64).prop_map(|(old, new)| (old * PAGE, new * PAGE)),
    ];
    (address(), lengths, flags, address()).prop_map(|(address, (old_length, length), flags, to)| {
        Op::Mremap {
            address,
            old_length,
            length,
            flags,
            to,
        }
    })
}

/// One operation inside the window, or `mremap`. Not for scripts that fork: both sides must leave out
/// the same operations.
pub fn remapping() -> impl Strategy<Value = Op> {
    prop_oneof![4 => near(), 1 => remap()]
}

/// One operation inside the window, or a seal. A sealed mapping outlasts its script.
pub fn sealing() -> impl Strategy<Value = Op> {
    let seal = (address(), length()).prop_map(|(address, length)| Op::Mseal { address, length });
    prop_oneof![9 => near(), 1 => seal]
}

/// One operation inside the window.
pub fn near() -> impl Strategy<Value = Op> {
    let word = || (page(), 0..WORDS.len()).prop_map(|(page, word)| page + WORDS[word]);
    prop_oneof![
        6 => (address(), length(), prot(), map_flags()).prop_map(
            |(address, length, prot, flags)| Op::Mmap { address, length, prot, flags }),
        3 => (address(), length()).prop_map(|(address, length)| Op::Munmap { address, length }),
        3 => (address(), length(), protect_bits()).prop_map(
            |(address, length, prot)| Op::Mprotect { address, length, prot }),
        3 => (address(), length(), what()).prop_map(
            |(address, length, advice)| Op::Madvise { address, length, advice }),
        1 => (address(), length()).prop_map(|(address, length)| Op::Mincore { address, length }),
        4 => word().prop_map(|address| Op::Load { address }),
        8 => (word(), 1..u64::MAX).prop_map(|(address, value)| Op::MemoryObject { address, value }),
    ]
}

fn limit() -> impl Strategy<Value = Op> {
    let pages = || prop_oneof![3 => 0..20u64, 1 => 20..200u64, 2 => Just(u64::MAX)];
    prop_oneof![
        3 => pages().prop_map(Limit::Mapped),
        3 => pages().prop_map(Limit::Data),
        // The limit of all stacks, the program's own included.
        1 => (64..2048u64).prop_map(Limit::Stack),
        // Bounded, because the host may not permit raising it.
        3 => pages().prop_map(|pages| Limit::Locked(pages.min(2000))),
    ]
    .prop_map(Op::Limit)
}

/// Locks and limits, and a query of the totals.
fn locking() -> impl Strategy<Value = Op> {
    let flags = prop_oneof![
        4 => Just(0),
        3 => Just(lock_flags::ONFAULT),
        1 => Just(2),
    ];
    let future = prop_oneof![
        2 => Just(lock_all_flags::FUTURE),
        2 => Just(lock_all_flags::FUTURE | lock_all_flags::ONFAULT),
        1 => Just(lock_all_flags::ONFAULT),
        1 => Just(0),
        1 => Just(8 | lock_all_flags::FUTURE),
    ];
    let lengths = || {
        prop_oneof![
            20 => length(),
            1 => Just(u64::MAX),
            1 => Just(u64::MAX - PAGE),
            1 => Just((CENTRE + 1).wrapping_neg()),
        ]
    };
    prop_oneof![
        6 => (address(), lengths(), flags).prop_map(
            |(address, length, flags)| Op::Mlock { address, length, flags }),
        3 => (address(), lengths()).prop_map(
            |(address, length)| Op::Munlock { address, length }),
        1 => future.prop_map(|flags| Op::Mlockall { flags }),
        1 => Just(Op::Munlockall),
        3 => (address(), length(), prot(), map_flags()).prop_map(
            |(address, length, prot, flags)| Op::Mmap {
                address,
                length,
                prot,
                flags: flags | LOCKED,
            }),
        3 => limit(),
        3 => Just(Op::VmStats),
    ]
}

fn limited_without_moves() -> impl Strategy<Value = Op> {
    prop_oneof![3 => near(), 2 => locking()]
}

/// One operation inside the window, locks and their limits included, or a fork. No query of the present pages
/// (see [`forking`]), and no operation that Linux might have to leave out.
pub fn limited_forking() -> impl Strategy<Value = Op> {
    prop_oneof![4 => limited_without_moves(), 1 => forking()].prop_map(|op| match op {
        Op::Mincore { .. } | Op::Limit(Limit::Mapped(_) | Limit::Data(_)) => Op::VmStats,
        op => op,
    })
}

/// One operation inside the window, locks and limits included, or `mremap`, but not one that leaves a locked mapping
/// behind. No limit of stacks: it applies to the size of one mapping, and Linux does not merge a moved mapping
/// with its equal neighbours.
pub fn limited() -> impl Strategy<Value = Op> {
    let without_moves = limited_without_moves().prop_map(|op| match op {
        Op::Limit(Limit::Stack(_)) => Op::VmStats,
        op => op,
    });
    let remap = remap().prop_map(|op| match op {
        Op::Mremap {
            address,
            old_length,
            length,
            flags,
            to,
        } => Op::Mremap {
            address,
            old_length,
            length,
            flags: flags & !remap_flags::DONTUNMAP,
            to,
        },
        op => op,
    });
    prop_oneof![6 => without_moves, 1 => remap]
}

/// One operation inside the window, or a fork. No query of the present pages: the zero pages in a child are one of
/// the deliberate differences.
pub fn forking() -> impl Strategy<Value = Op> {
    let fork = (0..12u64, any::<bool>()).prop_map(|(ops, later)| Op::Fork { ops, later });
    let near = near().prop_map(|op| match op {
        Op::Mincore { .. } => Op::VmStats,
        op => op,
    });
    prop_oneof![9 => near, 1 => fork]
}

/// Half of the limit of stacks, because a stack may have grown.
const LONGEST_STACK: u64 = 4 << 20;

/// One operation with arguments far outside.
pub fn far() -> impl Strategy<Value = Op> {
    let no_populate = map_flags().prop_map(|f| f & !flags::POPULATE | flags::FIXED_NOREPLACE);
    prop_oneof![
        (page(), odd(), prot(), no_populate).prop_map(|(address, length, prot, flags)| {
            // In a stack longer than the limit, Linux still grows parts that it happens not to have
            // merged ("stack-limit" in docs/differences.md).
            let flags = match length > LONGEST_STACK {
                true => flags & !flags::GROWSDOWN,
                false => flags,
            };
            Op::Mmap {
                address,
                length,
                prot,
                flags,
            }
        }),
        (
            page(),
            (1..2048u64).prop_map(|mib| mib << 20),
            prot(),
            Just(0x4032)
        )
            .prop_map(|(address, length, prot, flags)| Op::Mmap {
                address,
                length,
                prot,
                flags
            }),
        // Only inside: a length that reached other mappings would break the child.
        (
            page(),
            prop_oneof![Just(0), Just(1u64 << 30), Just(u64::MAX), Just(1 << 47)]
        )
            .prop_map(|(address, length)| Op::Munmap { address, length }),
        (
            page(),
            prop_oneof![
                Just(0),
                Just(1u64 << 30),
                Just(u64::MAX),
                Just(u64::MAX - CENTRE)
            ],
            prot()
        )
            .prop_map(|(address, length, prot)| Op::Mprotect {
                address,
                length,
                prot
            }),
        (
            page(),
            prop_oneof![
                Just(0),
                Just(1u64 << 30),
                Just(u64::MAX),
                Just(u64::MAX - CENTRE)
            ]
        )
            .prop_map(|(address, length)| Op::Madvise {
                address,
                length,
                advice: 0
            }),
        (
            page(),
            prop_oneof![Just(0), Just(1u64 << 30), Just(u64::MAX)]
        )
            .prop_map(|(address, length)| Op::Madvise {
                address,
                length,
                advice: 4
            }),
    ]
}

/// Keeps operations inside the sealed window; some ask for any address.
pub fn sealed() -> impl Strategy<Value = Op> {
    (near(), 0..3u32).prop_map(|(op, choice)| {
        let clip = |address: u64, length: u64| length.min(SEALED.end - (address & !(PAGE - 1)));
        match op {
            Op::Mmap {
                length,
                prot,
                flags,
                ..
            } if choice > 0 => Op::Mmap {
                address: 0,
                length,
                prot,
                flags: flags & !(flags::FIXED | flags::FIXED_NOREPLACE),
            },
            Op::Mmap {
                address,
                length,
                prot,
                flags,
            } => Op::Mmap {
                address,
                length: clip(address, length),
                prot,
                flags,
            },
            Op::Munmap { address, length } => Op::Munmap {
                address,
                length: clip(address, length),
            },
            Op::Mprotect {
                address,
                length,
                prot,
            } => Op::Mprotect {
                address,
                length: clip(address, length),
                prot,
            },
            Op::Madvise {
                address,
                length,
                advice,
            } => Op::Madvise {
                address,
                length: clip(address, length),
                advice,
            },
            Op::Mincore { address, length } => Op::Mincore {
                address,
                length: clip(address, length),
            },
            op => op,
        }
    })
}
