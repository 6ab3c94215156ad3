//! Addresses of programs, and where programs are at home.
//!
//! A program names an address outright, near [`CENTRE`] as a rule, or counts from where the heap
//! begins, which every system puts elsewhere: such an address lies in a zone around [`HEAP`], where
//! no address of user memory is.

use std::fmt;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// An address at which slots of every level of the mapping tree, and page tables, begin. Nothing
/// else of a process is near.
pub const CENTRE: u64 = 1 << 36;
/// Pages on each side of it whose contents are compared.
pub const NEAR: u64 = 330;

/// The beginning of the heap, wherever it is.
pub const HEAP: u64 = 1 << 62;
/// How far from there an address counts from there.
const HEAP_ZONE: u64 = 1 << 48;
/// Around a heap: answers that are counted from it. Nothing is there that was not asked for.
const AROUND: u64 = 2 << 40;
/// Pages of the heap whose contents are compared.
pub const HEAP_PAGES: u64 = 64;

/// Where a program is at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// Around the centre, with nothing else near.
    Open,
    /// The same, and everywhere else something is mapped: what the system chooses is in the window.
    Sealed,
    /// On the heap.
    Heap,
}

/// Which addresses a program is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its mappings are compared here.
    pub start: u64,
    /// The end of that.
    pub end: u64,
    /// Every page's content is compared here.
    pub first: u64,
    /// The end of that.
    pub last: u64,
}

impl Scene {
    /// All of them.
    pub const ALL: [Scene; 3] = [Scene::Open, Scene::Sealed, Scene::Heap];

    /// Its name in programs.
    pub const fn name(self) -> &'static str {
        match self {
            Scene::Open => "open",
            Scene::Sealed => "sealed",
            Scene::Heap => "heap",
        }
    }

    /// The addresses that programs are about, on a system whose heap begins at `heap`.
    pub const fn window(self, heap: u64) -> Window {
        let (first, last) = match self {
            Scene::Open | Scene::Sealed => (CENTRE - NEAR * PAGE, CENTRE + NEAR * PAGE),
            Scene::Heap => (heap, heap + HEAP_PAGES * PAGE),
        };
        let (start, end) = match self {
            Scene::Open => (CENTRE - (8 << 30), CENTRE + (8 << 30)),
            // Below what is compared there is room for huge pages.
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

/// The address that is meant on a system whose heap begins at `heap`.
pub fn real(address: u64, heap: u64) -> u64 {
    if address.wrapping_sub(HEAP - HEAP_ZONE) < 2 * HEAP_ZONE {
        heap.wrapping_add(address.wrapping_sub(HEAP))
    } else {
        address
    }
}

/// The opposite of [`real`], for addresses that the system has answered.
pub fn told(address: u64, heap: u64, scene: Scene) -> u64 {
    let distance = address.wrapping_sub(heap);
    if scene == Scene::Heap && distance.wrapping_add(AROUND) < 2 * AROUND {
        distance.wrapping_add(HEAP)
    } else {
        address
    }
}

/// An address as people read it: pages from the centre (`@-3`, with bytes `@-3+8`) or from the
/// heap's beginning (`heap+3`), else a number.
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
    /// Reads what `Display` wrote.
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

/// A number, with `0x` in front or without.
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
