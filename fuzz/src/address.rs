//! Addresses in programs, and the address ranges that programs use.
//!
//! An address in a program is absolute, usually near [`CENTRE`], or relative to the start of the
//! heap, which differs between systems. A relative address lies in a zone around [`HEAP`], which is
//! outside of user memory.

use std::fmt;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// An address at which slots of every level of the mapping tree, and page tables, begin. A process has no
/// other mappings near it.
pub const CENTRE: u64 = 1 << 36;
/// The number of compared pages on each side of the centre.
pub const NEAR: u64 = 330;

/// Bytes of a huge page.
pub const HUGE: u64 = 512 * PAGE;

/// The start of the heap, wherever it is.
pub const HEAP: u64 = 1 << 62;
/// Addresses closer to `HEAP` than this are relative to the heap.
const HEAP_ZONE: u64 = 1 << 48;
/// Results closer to a heap than this are shown relative to it. Only the program maps memory there.
const AROUND: u64 = 2 << 40;
/// The number of compared pages of the heap.
pub const HEAP_PAGES: u64 = 64;

/// The address range that a program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// Around the centre, with no other mappings near.
    Open,
    /// The same, and everything else is mapped, so that the system chooses addresses in the window.
    Sealed,
    /// On the heap.
    Heap,
    /// Around the centre, with huge pages wherever they fit. In all other scenes there are none.
    Huge,
}

/// The addresses that a program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The start of the range in which mappings are compared.
    pub start: u64,
    /// Its end.
    pub end: u64,
    /// The start of the range in which every page's content is compared.
    pub first: u64,
    /// Its end.
    pub last: u64,
}

impl Scene {
    /// All of them.
    pub const ALL: [Scene; 4] = [Scene::Open, Scene::Sealed, Scene::Heap, Scene::Huge];

    /// Its name in programs.
    pub const fn name(self) -> &'static str {
        match self {
            Scene::Open => "open",
            Scene::Sealed => "sealed",
            Scene::Heap => "heap",
            Scene::Huge => "huge",
        }
    }

    /// The addresses that programs use, on a system with a heap that begins at `heap`.
    pub const fn window(self, heap: u64) -> Window {
        let (first, last) = match self {
            Scene::Open | Scene::Sealed => (CENTRE - NEAR * PAGE, CENTRE + NEAR * PAGE),
            Scene::Heap => (heap, heap + HEAP_PAGES * PAGE),
            Scene::Huge => (CENTRE - HUGE, CENTRE + HUGE),
        };
        let (start, end) = match self {
            Scene::Open | Scene::Huge => (CENTRE - (8 << 30), CENTRE + (8 << 30)),
            // Below the compared pages there is room for huge pages.
            Scene::Sealed => (CENTRE - 2048 * PAGE, last),
            Scene::Heap => (heap, heap + (2 << 30)),
        };
        Window {
            start,
            end,
            first,
            last,
        }
    }
}

/// The real address on a system with a heap that begins at `heap`.
pub fn real(address: u64, heap: u64) -> u64 {
    if address.wrapping_sub(HEAP - HEAP_ZONE) < 2 * HEAP_ZONE {
        heap.wrapping_add(address.wrapping_sub(HEAP))
    } else {
        address
    }
}

/// The inverse of [`real`], for addresses that the system has returned.
pub fn told(address: u64, heap: u64, scene: Scene) -> u64 {
    let distance = address.wrapping_sub(heap);
    if scene == Scene::Heap && distance.wrapping_add(AROUND) < 2 * AROUND {
        distance.wrapping_add(HEAP)
    } else {
        address
    }
}

/// The readable form of an address: pages from the centre (`@-3`, with bytes `@-3+8`) or from the
/// start of the heap (`heap+3`), else a number.
#[derive(Clone, Copy, Debug)]
pub struct Shown(pub u64);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const REACH: u64 = 8 << 30;
        let pages = |f: &mut fmt::Formatter<'_>, name, from: u64| {
            let distance = self.0.wrapping_sub(from).cast_signed();
            let (page, bytes) = (distance >> 12, distance & 0xfff);
            match bytes {
                0 => write!(f, "{name}{page}"),
                bytes => write!(f, "{name}{page}+{bytes:#x}"),
            }
        };
        if self.0.wrapping_sub(CENTRE - REACH) <= 2 * REACH {
            pages(f, "@", CENTRE)
        } else if self.0.wrapping_sub(HEAP - HEAP_ZONE) < 2 * HEAP_ZONE {
            pages(f, "heap", HEAP)
        } else {
            write!(f, "{:#x}", self.0)
        }
    }
}

impl Shown {
    /// Parses the output of `Display`.
    pub fn parse(text: &str) -> Option<u64> {
        let (from, pages) = match (text.strip_prefix('@'), text.strip_prefix("heap")) {
            (Some(pages), _) => (CENTRE, pages),
            (_, Some(pages)) => (HEAP, pages),
            _ => return number(text),
        };
        let (pages, bytes) = match pages.split_once('+') {
            Some((pages, bytes)) => (pages, number(bytes)?),
            None => (pages, 0),
        };
        let pages: i64 = pages.parse().ok()?;
        Some(from.wrapping_add_signed(pages << 12).wrapping_add(bytes))
    }
}

/// Parses a number, with `0x` in front or without.
pub fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::{CENTRE, HEAP, PAGE, Scene, Shown, real, told};

    #[test]
    fn what_is_shown_is_read() {
        for address in [
            0,
            1,
            CENTRE,
            CENTRE - 1,
            CENTRE + 5 * PAGE + 8,
            CENTRE - 3 * PAGE,
            HEAP,
            HEAP + 7,
            HEAP - (1 << 40),
            1 << 47,
            1 << 63,
            u64::MAX,
            u64::MAX - PAGE + 1,
        ] {
            let text = Shown(address).to_string();
            assert_eq!(Shown::parse(&text), Some(address), "{text}");
        }
        assert_eq!(Shown(CENTRE - 3 * PAGE + 8).to_string(), "@-3+0x8");
        assert_eq!(Shown(HEAP + PAGE).to_string(), "heap1");
        assert_eq!(Shown::parse("@x"), None);
    }

    #[test]
    fn heaps_are_where_they_are() {
        let heap = 0x5555_5570_0000;
        assert_eq!(real(HEAP + 5, heap), heap + 5);
        assert_eq!(real(CENTRE, heap), CENTRE);
        assert_eq!(real(u64::MAX, heap), u64::MAX);
        assert_eq!(told(heap + 5, heap, Scene::Heap), HEAP + 5);
        assert_eq!(told(heap + 5, heap, Scene::Open), heap + 5);
    }
}
