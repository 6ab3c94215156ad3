//! `mmap` of anonymous memory.

#[cfg(feature = "soft")]
use faultless_mm::Errno;

#[cfg(feature = "soft")]
use crate::address::{PAGE, Scene};
use crate::kind::{ADDRESS, Act, Kind, LENGTH, Meaning, PROT, Shows, argument};

#[cfg(feature = "soft")]
use crate::draw::Draw;

const SHARED: u64 = 0x1;
const PRIVATE: u64 = 0x2;
const FIXED: u64 = 0x10;
const ANONYMOUS: u64 = 0x20;
const GROWSDOWN: u64 = 0x100;
const NORESERVE: u64 = 0x4000;
const POPULATE: u64 = 0x8000;
const NONBLOCK: u64 = 0x1_0000;
const NOREPLACE: u64 = 0x10_0000;

const FLAGS: &[(&str, u64)] = &[
    ("shared", SHARED),
    ("private", PRIVATE),
    ("fixed", FIXED),
    ("anonymous", ANONYMOUS),
    ("growsdown", GROWSDOWN),
    ("locked", 0x2000),
    ("noreserve", NORESERVE),
    ("populate", POPULATE),
    ("nonblock", NONBLOCK),
    ("stack", 0x2_0000),
    ("hugetlb", 0x4_0000),
    ("sync", 0x8_0000),
    ("noreplace", NOREPLACE),
    ("uninitialized", 0x400_0000),
];

pub static MMAP: Kind = Kind {
    name: "mmap",
    arguments: &[
        ADDRESS,
        LENGTH,
        argument("prot", Meaning::Bits(PROT)),
        argument("flags", Meaning::Bits(FLAGS)),
        argument("fd", Meaning::Number),
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
        soft: |cpu, &[address, length, prot, flags, _, offset]| {
            // What every kernel looks at before it comes to the memory. There are no files here.
            if !offset.is_multiple_of(PAGE) {
                return Err(Errno::EINVAL);
            }
            if flags & ANONYMOUS == 0 {
                return Err(Errno(libc::EBADF));
            }
            cpu.space().mmap(address, length, prot as u32, flags as u32)
        },
    },
};

/// No file.
#[cfg(feature = "soft")]
const NO_FILE: u64 = u64::MAX;

#[cfg(feature = "soft")]
fn draw(draw: &mut Draw) -> [u64; 6] {
    if draw.is_beside() {
        let (address, length) = draw.range();
        let flags = place(draw) | ANONYMOUS | PRIVATE;
        return [address, length, draw.prot(), flags, NO_FILE, 0];
    }
    let chosen_by_it = draw.scene() == Scene::Sealed && draw.chance(2, 3);
    if chosen_by_it {
        let flags = PRIVATE | ANONYMOUS | kind(draw);
        return [0, draw.length(), draw.prot(), flags, NO_FILE, 0];
    }
    if draw.scene() == Scene::Open && draw.chance(1, 30) {
        return far(draw);
    }
    let address = draw.address();
    let length = draw.length();
    let which = draw.pick(&[(40, PRIVATE), (1, 0)]);
    let kind = match draw.scene() {
        // What is below the heap depends on the system.
        Scene::Heap => 0,
        _ => kind(draw),
    };
    let flags = which | ANONYMOUS | kind | place(draw);
    [
        address,
        draw.inside(address, length),
        draw.prot(),
        flags,
        NO_FILE,
        0,
    ]
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
    draw.pick(&[
        (20, 0),
        (3, NORESERVE),
        (3, POPULATE),
        (1, POPULATE | NONBLOCK),
        (5 * grows, GROWSDOWN),
        (grows, GROWSDOWN | POPULATE),
    ])
}

/// Large ones, without what depends on how much memory the machine has, and impossible ones.
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
