//! Random operations on the heap. Addresses count from its start.

use faultless_mm::{advice, flags};
use proptest::prelude::*;

use crate::operations::OPEN;
use crate::script::{Op, PAGE, WORDS, Window};

/// Only the heap is compared.
pub const NOWHERE: Window = Window {
    first: OPEN.first,
    last: OPEN.first,
    ..OPEN
};

/// Pages that scripts access. A heap may end far beyond.
const PAGES: u64 = 48;
/// More than any heap of a script reaches.
const SPAN: u64 = 1 << 31;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;

fn page() -> impl Strategy<Value = u64> {
    prop_oneof![2 => 0..8u64, 1 => 0..PAGES].prop_map(|page| page * PAGE)
}

fn end() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => page(),
        4 => (page(), 1..PAGE).prop_map(|(page, offset)| page + offset),
        1 => prop_oneof![Just(256 * PAGE), Just(1 << 21), Just(1 << 30)],
        // Far below the heap (just below it may be the C library's), and beyond all addresses.
        1 => prop_oneof![Just((1u64 << 40).wrapping_neg()), Just(1 << 47)],
    ]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 1..4u64, 1 => 1..20u64].prop_map(|pages| pages * PAGE)
}

/// No mapping that grows down: what lies below the heap depends on the program.
fn map_flags() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => Just(flags::FIXED),
        1 => Just(flags::FIXED_NOREPLACE),
    ]
    .prop_map(|place| place | ANON)
}

/// One operation on the heap or beside it.
pub fn heap() -> impl Strategy<Value = Op> {
    let prot = || prop_oneof![3 => Just(3), 1 => Just(1), 1 => Just(0)];
    let word = || (page(), 0..WORDS.len()).prop_map(|(page, word)| page + WORDS[word]);
    prop_oneof![
        10 => end().prop_map(|address| Op::Brk { address }),
        1 => (page(), length(), prot(), map_flags()).prop_map(
            |(address, length, prot, flags)| Op::Mmap { address, length, prot, flags }),
        2 => (page(), length()).prop_map(|(address, length)| Op::Munmap { address, length }),
        1 => (page(), length(), prot()).prop_map(
            |(address, length, prot)| Op::Mprotect { address, length, prot }),
        1 => (page(), length()).prop_map(
            |(address, length)| Op::Madvise { address, length, advice: advice::DONTNEED }),
        3 => word().prop_map(|address| Op::Load { address }),
        6 => (word(), 1..u64::MAX).prop_map(|(address, value)| Op::MemoryObject { address, value }),
    ]
}

/// Loads every page, then removes the heap and all mappings in its place.
pub fn finish() -> impl Iterator<Item = Op> {
    let looks = (0..PAGES).map(|page| Op::Load {
        address: page * PAGE,
    });
    let flags = ANON | flags::FIXED | flags::NORESERVE;
    // If other mappings follow the heap, it shrinks only after something is mapped over it.
    let end = [
        Op::Mmap {
            address: 0,
            length: SPAN,
            prot: 0,
            flags,
        },
        Op::Brk { address: 0 },
        Op::Munmap {
            address: 0,
            length: SPAN,
        },
    ];
    looks.chain(end)
}
