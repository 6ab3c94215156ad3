//! Loom models of compressed pages that share a group and are discarded by two CPUs, beside a write.
//!
//! At the end no frame is lost or freed twice, and pages that stay are what was written.

use crate::explore::explore;
use crate::machine::{Machine, set_cpu};
use faultless_swap::{Compressed, Page, Scratch, SwapDevice};
use faultless_sync::{Mutant, with_flaw};
use loom::sync::Arc;
use loom::thread;

/// The frames of a machine. A group has four.
const FRAMES: u64 = 8;
/// Pages that fill a group: see `shape.rs`.
const FULL: u64 = 5;

/// A page that LZ4 compresses to about 3,000 bytes. On the heap: a thread of loom's has a small stack.
fn page(seed: u64) -> Box<Page> {
    let mut state = seed + 1;
    let bytes = (0..4096).map(|at| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        if at < 2950 { (state >> 33) as u8 } else { 0 }
    });
    bytes.collect::<Vec<_>>().try_into().unwrap()
}

/// Each CPU's scratch memory, made in its place.
fn scratch() -> &'static [Scratch] {
    let mut places: Box<[_]> = Box::new_uninit_slice(2);
    for place in &mut places {
        Scratch::place(place);
    }
    // SAFETY: made just now.
    Box::leak(unsafe { places.assume_init() })
}

/// A device, and the machine whose frames it has.
struct Shared {
    device: Compressed<&'static Machine>,
    machine: &'static Machine,
}

impl Shared {
    fn new(pages: u64) -> Arc<Self> {
        set_cpu(0);
        let machine: &'static Machine = Box::leak(Box::new(Machine::with_frames(FRAMES)));
        let device = Compressed::new(machine, scratch(), FULL + 1).unwrap();
        (0..pages).for_each(|slot| device.write(slot, &page(slot)).unwrap());
        Arc::new(Self { device, machine })
    }

    fn check(&self, slot: u64) {
        let mut found = page(FULL);
        self.device.read(slot, &mut found).unwrap();
        assert!(found == page(slot), "a page has changed");
    }

    /// The other CPU discards a slot.
    fn discard_beside(shared: &Arc<Self>, slot: u64) -> thread::JoinHandle<()> {
        let shared = shared.clone();
        thread::spawn(move || {
            set_cpu(1);
            shared.device.discard(slot);
        })
    }

    /// Discards the pages that are left. All frames are free then.
    fn end(&self, left: impl IntoIterator<Item = u64>) {
        for slot in left {
            self.check(slot);
            self.device.discard(slot);
        }
        assert_eq!(self.machine.free(), FRAMES as usize, "a frame is lost");
    }
}

/// Two CPUs discard the last two pages of a group.
fn the_last_two() {
    explore(None, || {
        let shared = Shared::new(2);
        assert_eq!(shared.machine.free(), FRAMES as usize / 2, "one group");
        let other = Shared::discard_beside(&shared, 0);
        shared.device.discard(1);
        other.join().unwrap();
        shared.end([]);
    });
}

/// Two CPUs discard pages of a full group, and one of them writes another page.
fn a_full_group() {
    explore(None, || {
        let shared = Shared::new(FULL);
        let other = Shared::discard_beside(&shared, 0);
        shared.device.discard(1);
        shared.device.write(FULL, &page(FULL)).unwrap();
        other.join().unwrap();
        assert_eq!(shared.machine.free(), FRAMES as usize / 2, "one group");
        shared.end(2..=FULL);
    });
}

/// A page is written to the group whose last page goes.
fn written_beside_the_last() {
    explore(None, || {
        let shared = Shared::new(1);
        let other = Shared::discard_beside(&shared, 0);
        shared.device.write(1, &page(1)).unwrap();
        other.join().unwrap();
        shared.end([1]);
    });
}

#[test]
fn a_group_ends_once() {
    the_last_two();
}

#[test]
fn a_full_group_has_room_again() {
    a_full_group();
}

#[test]
fn a_group_ends_or_gets_a_page() {
    written_beside_the_last();
}

#[test]
#[should_panic(expected = "a frame is lost")]
fn broken_last_object_given_back() {
    with_flaw(Mutant::LastObjectGivenBack, the_last_two);
}
