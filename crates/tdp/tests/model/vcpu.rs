//! A vCPU of a model: loads and stores through the second-level tables, with what it has cached of them.

use std::sync::Arc;

use faultless_mm::{Access, AddressSpace, EntryFormat};
use faultless_paging::{ENTRIES, Frame, LEVELS, Page, Table};
use faultless_sync::atomic::{Ordering, fence};
use faultless_tdp::{
    DirtyPage, DirtyRing, Guest, GuestFault, GuestMachine, GuestOutcome, Npt, Options, OwnedGuest,
    Slot, SlotFlags,
};

use crate::model::{Model, PAGE, Translation, World};

/// A model's world, as the host of guests.
pub struct Host(pub Arc<World>);

impl AsRef<AddressSpace<Model>> for Host {
    fn as_ref(&self) -> &AddressSpace<Model> {
        self.0.space()
    }
}

impl GuestMachine for Model {
    type SecondLevel = Npt;

    fn flush_guest(&self, _tag: u64) {
        self.flush_guests();
    }
}

/// A guest of a model, shared between its threads.
pub type ModelGuest = OwnedGuest<Model, Arc<Host>>;

/// Makes a guest without slots.
pub fn guest(world: &Arc<World>) -> Arc<ModelGuest> {
    guest_by(world, true)
}

/// Makes a guest without slots, with the TDP MMU or the legacy one.
pub fn guest_by(world: &Arc<World>, tdp_mmu: bool) -> Arc<ModelGuest> {
    guest_with(
        world,
        Options {
            tdp_mmu,
            ..Options::default()
        },
    )
}

/// Makes a guest without slots that works in this way.
pub fn guest_with(world: &Arc<World>, options: Options) -> Arc<ModelGuest> {
    let host = Arc::new(Host(world.clone()));
    Arc::new(OwnedGuest::new(host, 0, options).expect("there are frames"))
}

/// Ends a guest and its world.
pub fn finish(guest: Arc<ModelGuest>, world: Arc<World>) {
    let machine = world.space().memory().machine();
    for cpu in 0..world.space().memory().cpus().len() as u32 {
        machine.guest_tlb(cpu).lock().unwrap().clear();
    }
    let Ok(guest) = Arc::try_unwrap(guest) else {
        panic!("a thread still runs");
    };
    guest.destroy();
    world.finish();
}

/// Sets slot `number`: `pages` guest pages from `first` on show the host's pages from `host` on.
pub fn set(guest: &ModelGuest, number: u32, [first, pages, host]: [u64; 3], flags: SlotFlags) {
    let slot = Slot {
        guest_address: first * PAGE,
        size: pages * PAGE,
        host_address: host * PAGE,
        flags,
    };
    guest.set_slot(number, &slot).expect("it is a slot");
}

/// Returns the slot's dirty pages, as bits.
pub fn dirty(guest: &ModelGuest, clears: bool) -> u64 {
    let mut bits = 0;
    let mut give = |word| {
        bits = word;
        Ok(())
    };
    guest
        .get_dirty_log(0, clears, &mut give)
        .expect("it is logged");
    bits
}

/// Makes a ring with so many places.
pub fn ring(places: usize) -> Arc<DirtyRing<'static>> {
    let places = Vec::from_iter((0..places).map(|_| DirtyPage::default()));
    Arc::new(DirtyRing::new(places.leak(), 0).expect("a power of two"))
}

/// Harvests a ring and resets it. Returns the pages of slot 0 that were in it, as bits.
pub fn reset(guest: &ModelGuest, ring: &DirtyRing<'_>, next: &mut u64) -> u64 {
    let (mut bits, before) = (0, *next);
    while let Some((slot, page)) = ring.harvest(next) {
        assert_eq!(slot, 0, "a page that was not pushed");
        bits |= 1 << page;
    }
    let mut reset = guest.begin_reset();
    reset.ring(ring);
    let harvested = *next - before;
    assert_eq!(
        reset.finish(),
        harvested,
        "what is in the ring is not what was reset"
    );
    bits
}

/// A vCPU on a CPU, run by the calling thread.
pub struct Vcpu<'a> {
    guest: &'a Guest<Model, Arc<Host>>,
    cpu: u32,
    ring: Option<&'a DirtyRing<'a>>,
}

impl<'a> Vcpu<'a> {
    /// The vCPU of `guest` on CPU `cpu`.
    pub fn new(guest: &'a ModelGuest, cpu: u32) -> Self {
        let ring = None;
        Self { guest, cpu, ring }
    }

    /// One that logs its stores in a ring.
    pub fn with_ring(guest: &'a ModelGuest, cpu: u32, ring: &'a DirtyRing<'a>) -> Self {
        let ring = Some(ring);
        Self { guest, cpu, ring }
    }

    fn machine(&self) -> &'static Model {
        self.guest.space().memory().machine()
    }

    /// Loads a page's word; `None` if the access leaves the guest.
    pub fn load(&self, page: u64) -> Option<u64> {
        let machine = self.machine();
        self.access(page, Access::Read, |frame| machine.word(frame))
    }

    /// Stores a page's word; `None` if the access leaves the guest.
    pub fn store(&self, page: u64, word: u64) -> Option<()> {
        let machine = self.machine();
        self.access(page, Access::Write, |frame| machine.set_word(frame, word))
    }

    fn access<R>(&self, page: u64, access: Access, act: impl Fn(Frame) -> R) -> Option<R> {
        let tlb = self.machine().guest_tlb(self.cpu);
        loop {
            self.machine().step();
            {
                let tlb = tlb.lock().unwrap();
                // Hardware may use either. The huge one is the older.
                let huge = tlb.huge.get(&first_of(page)).map(|huge| huge.part(page));
                let mut both = huge.into_iter().chain(tlb.entries.get(&page).copied());
                if let Some(hit) = both.find(|hit| access != Access::Write || hit.write) {
                    return Some(act(hit.frame));
                }
            }
            tlb.lock().unwrap().walks = true;
            // Every later flush waits for the walk.
            fence(Ordering::SeqCst);
            let found = self.walk(page);
            let mut tlb = tlb.lock().unwrap();
            tlb.walks = false;
            if let Some((translation, table)) = found
                && (access != Access::Write || translation.write)
            {
                let first = first_of(page);
                let Some(table) = table else {
                    tlb.huge.insert(first, translation);
                    return Some(act(translation.part(page).frame));
                };
                tlb.entries.insert(page, translation);
                // A later walk might begin there.
                tlb.tables.insert((0, first), (table, true));
                return Some(act(translation.frame));
            }
            drop(tlb);
            let fault = GuestFault {
                address: page * PAGE,
                access,
                vcpu: self.cpu,
                error_code: 0,
                ring: self.ring,
            };
            match self.guest.fault_of_vcpu(&fault) {
                GuestOutcome::Resolved(_) => {}
                _ => return None,
            }
        }
    }

    /// Walks the tables as hardware does. Returns the translation, and the table that has the entry; none for a huge page.
    fn walk(&self, page: u64) -> Option<(Translation, Option<Frame>)> {
        let format = Npt::FORMAT;
        let translation = |value| Translation {
            frame: format.frame(value),
            write: format.is_writable(value),
        };
        let mut frame = self.guest.root();
        for level in (1..LEVELS).rev() {
            // SAFETY: tables are freed after a flush, which waits for this walk.
            let table = unsafe { Table::at(&self.machine().hardware(), frame) };
            let value = table.entry(Page(page).0, level).load();
            if !format.is_present(value) {
                return None;
            }
            if format.is_huge(value) {
                return Some((translation(value), None));
            }
            frame = format.frame(value);
        }
        // SAFETY: as above.
        let value = unsafe { Table::at(&self.machine().hardware(), frame) }
            .entry(page, 0)
            .load();
        format
            .is_present(value)
            .then(|| (translation(value), Some(frame)))
    }
}

/// Returns the first page of the huge page around a page.
fn first_of(page: u64) -> u64 {
    page & !(ENTRIES as u64 - 1)
}
