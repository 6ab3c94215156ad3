//! `mmap`: anonymous memory, private and shared, and files.

#[cfg(feature = "soft")]
use faultless_mm::{Errno, Opened};

#[cfg(feature = "soft")]
use crate::address::{PAGE, Scene};
#[cfg(feature = "soft")]
use crate::kind::NO_FILE;
use crate::kind::{ADDRESS, Act, FILE, Kind, LENGTH, Meaning, PROT, Shows, argument};

#[cfg(feature = "soft")]
use crate::draw::Draw;

const SHARED: u64 = 0x1;
const PRIVATE: u64 = 0x2;
/// `MAP_SHARED_VALIDATE`.
#[cfg(feature = "soft")]
const VALIDATE: u64 = 0x3;
const FIXED: u64 = 0x10;
const ANONYMOUS: u64 = 0x20;
const GROWSDOWN: u64 = 0x100;
const NORESERVE: u64 = 0x4000;
const POPULATE: u64 = 0x8000;
const NONBLOCK: u64 = 0x1_0000;
const NOREPLACE: u64 = 0x10_0000;

const LOCKED: u64 = 0x2000;
const DROPPABLE: u64 = 0x8;
const LOW: u64 = 0x40;
const ABOVE4G: u64 = 0x80;
const STACK: u64 = 0x2_0000;
const HUGETLB: u64 = 0x4_0000;
const SYNC: u64 = 0x8_0000;
const UNINITIALIZED: u64 = 0x400_0000;

const FLAGS: &[(&str, u64)] = &[
    ("shared", SHARED),
    ("private", PRIVATE),
    ("droppable", DROPPABLE),
    ("fixed", FIXED),
    ("anonymous", ANONYMOUS),
    ("32bit", LOW),
    ("above4g", ABOVE4G),
    ("growsdown", GROWSDOWN),
    ("locked", LOCKED),
    ("noreserve", NORESERVE),
    ("populate", POPULATE),
    ("nonblock", NONBLOCK),
    ("stack", STACK),
    ("hugetlb", HUGETLB),
    ("sync", SYNC),
    ("noreplace", NOREPLACE),
    ("uninitialized", UNINITIALIZED),
];

pub static MMAP: Kind = Kind {
    name: "mmap",
    arguments: &[
        ADDRESS,
        LENGTH,
        argument("prot", Meaning::Bits(PROT)),
        argument("flags", Meaning::Bits(FLAGS)),
        FILE,
        argument("offset", Meaning::Number),
    ],
    weights: [6, 6, 1],
    stays: true,
    #[cfg(feature = "soft")]
    draw,
    act: Act::Call {
        number: libc::SYS_mmap,
        shows: Shows::Place { length: 1 },
        #[cfg(feature = "soft")]
        soft: |here, &[address, length, prot, flags, file, offset]| {
            // Every kernel checks this before the core is called.
            if !offset.is_multiple_of(PAGE) {
                return Err(Errno::EINVAL);
            }
            let (prot, kind) = (prot as u32, flags as u32);
            if flags & ANONYMOUS != 0 {
                return here.space().mmap(address, length, prot, kind);
            }
            let opened = Opened {
                store: Ok(here.files.store(file)?),
                offset,
                file: file + 1,
                writable: true,
            };
            let space = here.space();
            space.mmap_object(address, length, prot, kind, &opened)
        },
    },
};

#[cfg(feature = "soft")]
fn draw(draw: &mut Draw) -> [u64; 6] {
    if draw.is_beside() {
        let (address, length) = draw.range();
        let flags = place(draw) | ANONYMOUS | PRIVATE;
        return [address, length, draw.prot(), flags, NO_FILE, 0];
    }
    let (of, file, offset) = what(draw);
    let chosen_by_it = draw.scene() == Scene::Sealed && draw.chance(2, 3);
    if chosen_by_it {
        let flags = of | kind(draw);
        return [0, draw.length(), draw.prot(), flags, file, offset];
    }
    if draw.scene() == Scene::Open && !draw.locks_all() && draw.chance(1, 30) {
        return far(draw);
    }
    let address = draw.address();
    let length = draw.length();
    let kind = match draw.scene() {
        // The memory below the heap depends on the system.
        Scene::Heap => 0,
        _ => kind(draw),
    };
    // Without a file, `MAP_HUGETLB` asks for huge pages, which only some systems have.
    let is_huge = file != NO_FILE && draw.chance(1, 60);
    let kind = if is_huge { kind | HUGETLB } else { kind };
    let flags = of | kind | place(draw);
    [
        address,
        draw.inside(address, length),
        draw.prot(),
        flags,
        file,
        offset,
    ]
}

/// What is mapped: flags, the file, and the offset in it.
#[cfg(feature = "soft")]
fn what(draw: &mut Draw) -> (u64, u64, u64) {
    let shared = u32::from(draw.may_share());
    // What is paged out of a droppable mapping is discarded: see the table of differences.
    let droppable = u32::from(!draw.pages_out());
    if draw.has_files() && draw.chance(2, 3) {
        let which = draw.pick(&[
            (20, SHARED),
            (20, PRIVATE),
            (4, VALIDATE),
            (1, DROPPABLE),
            (1, 0),
        ]);
        let file = if draw.chance(1, 40) {
            NO_FILE
        } else {
            draw.file()
        };
        let offset = match draw.below(60) {
            0 => draw.odd(),
            1 => i64::MAX as u64 - 8 * PAGE + 1,
            _ => draw.offset() & !(PAGE - 1),
        };
        return (which, file, offset);
    }
    let which = draw.pick(&[
        (40, PRIVATE),
        (12 * shared, SHARED),
        (shared, VALIDATE),
        (4 * droppable, DROPPABLE),
        (1, 0),
    ]);
    (which | ANONYMOUS, NO_FILE, 0)
}

#[cfg(feature = "soft")]
fn place(draw: &mut Draw) -> u64 {
    let free = if draw.scene() == Scene::Heap || draw.is_beside() {
        0
    } else {
        3
    };
    draw.pick(&[
        (free, 0),
        (4, FIXED),
        (1, NOREPLACE),
        (1, FIXED | NOREPLACE),
    ])
}

#[cfg(feature = "soft")]
fn kind(draw: &mut Draw) -> u64 {
    let grows = if draw.is_still() { 0 } else { 1 };
    let locks = u32::from(draw.locks());
    draw.pick(&[
        (20, 0),
        (3, NORESERVE),
        (3, POPULATE),
        (1, POPULATE | NONBLOCK),
        (locks, LOCKED),
        (5 * grows, GROWSDOWN),
        (grows, GROWSDOWN | POPULATE),
        (2, STACK),
        (1, STACK | NORESERVE),
        (1, SYNC),
        (1, UNINITIALIZED),
        (1, LOW),
        (1, ABOVE4G),
    ])
}

/// A large mapping within the memory of every machine, or an impossible one.
#[cfg(feature = "soft")]
fn far(draw: &mut Draw) -> [u64; 6] {
    let length = if draw.chance(1, 2) {
        (1 + draw.below(2047)) << 20
    } else {
        draw.odd()
    };
    let flags = PRIVATE | ANONYMOUS | NORESERVE | NOREPLACE;
    [draw.page(), length, draw.prot(), flags, NO_FILE, 0]
}
