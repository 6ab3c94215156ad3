//! What all address spaces of a machine share: the machine, slabs for nodes, splits and
//! mappings, reclamation, and each CPU's counters.
//!
//! Nothing here is written by a fault except the CPU's own part.

use core::ptr::NonNull;

use faultless_frames::{Flags, FrameSource, Magazine, NoMemory, Slab};
use faultless_paging::{Frame, Table};
use faultless_sync::atomic::{AtomicU32, AtomicU64, Local, Ordering, amortised};
use faultless_sync::reclaim::{Domain, Grace, Owner, Participant, Section};
use faultless_sync::{Cpu, Padded};
use faultless_trace::{Counter, Counters, Tracer};

use crate::base::machine::Machine;
use crate::lock::departing::Departing;
use crate::object;
use crate::probe::list::{self, Probes};
use crate::reclaim::isolated::IsolatedFrames;
use crate::rmap::anon::Spaces;
use crate::space::AddressSpace;
use crate::tree::mapping::{Attributes, Mapping};
use crate::tree::{Node, Split};

/// One CPU's part of the memory core. A port makes one for each CPU.
#[derive(Default)]
#[repr(align(128))]
pub struct PerCpu {
    counters: Counters,
    tracer: Tracer,
    nodes: Magazine,
    splits: Magazine,
    mappings: Magazine,
    stores: Magazine,
    radix_nodes: Magazine,
    probes: Magazine,
    /// Its part of what is committed: a difference, which wraps.
    committed: Local,
}

impl PerCpu {
    /// A CPU that has done nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The CPU's counters.
    #[inline]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The CPU's recorder of events and latencies.
    #[inline]
    pub fn tracer(&self) -> &Tracer {
        &self.tracer
    }
}

/// The memory core of a machine.
pub struct Memory<M: Machine> {
    machine: M,
    cpus: &'static [PerCpu],
    participants: &'static [Participant],
    domain: Padded<Domain>,
    nodes: Padded<Slab>,
    splits: Padded<Slab>,
    mappings: Padded<Slab>,
    stores: Padded<Slab>,
    radix_nodes: Padded<Slab>,
    probe_bodies: Padded<Slab>,
    probes: Padded<Probes>,
    all_objects: Padded<object::Objects>,
    spaces: Padded<Spaces>,
    kept: Padded<IsolatedFrames>,
    departing: Departing,
    /// Counts how often the last walk has left a space that waited for that.
    visits_over: Padded<AtomicU32>,
    next_id: Padded<AtomicU64>,
}

/// Something unlinked that readers may still look at.
pub(crate) enum Retired {
    Node(NonNull<Node>),
    Split(NonNull<Split>),
    Mapping(NonNull<Mapping>),
    Table(Frame),
}

const NODE: u64 = 0;
const MAPPING: u64 = 1;
const TABLE: u64 = 2;
const SPLIT: u64 = 3;
/// What tells them apart.
const KINDS: u64 = 3;

impl<M: Machine> Memory<M> {
    /// The memory core of `machine`, for as many CPUs as there are entries in
    /// `cpus` and `participants`. A CPU must be [`Memory::online`] before it
    /// calls anything else.
    pub fn new(machine: M, cpus: &'static [PerCpu], participants: &'static [Participant]) -> Self {
        Self {
            machine,
            cpus,
            participants,
            domain: Padded(Domain::new()),
            nodes: Padded(Slab::new(size_of::<Node>())),
            splits: Padded(Slab::new(size_of::<Split>())),
            mappings: Padded(Slab::new(size_of::<Mapping>())),
            stores: Padded(Slab::new(size_of::<object::ObjectInner>())),
            radix_nodes: Padded(Slab::new(size_of::<object::Node>())),
            probe_bodies: Padded(Slab::new(size_of::<list::Body>())),
            probes: Padded(Probes::new()),
            all_objects: Padded(object::Objects::new()),
            spaces: Padded(Spaces::new()),
            kept: Padded(IsolatedFrames::new()),
            departing: Departing::new(),
            visits_over: Padded(AtomicU32::new(0)),
            next_id: Padded(AtomicU64::new(1)),
        }
    }

    /// The machine.
    #[inline]
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Lets the calling CPU take part in reclamation.
    pub fn online(&self, cpu: Cpu) {
        self.domain.online(cpu);
    }

    /// A CPU that will not call into the core until it is online again.
    pub fn offline(&self, cpu: Cpu) {
        self.domain.offline(cpu);
    }

    /// This CPU's part.
    #[inline]
    pub fn this_cpu(&self) -> &PerCpu {
        &self.cpus[self.machine.cpu().index()]
    }

    /// Every CPU's part.
    pub fn cpus(&self) -> &'static [PerCpu] {
        self.cpus
    }

    /// Counts one on this CPU.
    #[inline]
    pub fn count(&self, counter: Counter) {
        self.this_cpu().counters.count(counter);
    }

    /// A counter, added up over all CPUs.
    pub fn total(&self, counter: Counter) -> u64 {
        self.cpus.iter().map(|cpu| cpu.counters.get(counter)).sum()
    }

    /// Counts pages that were committed, or no longer are: a difference, which wraps.
    #[inline]
    pub(crate) fn commit(&self, pages: u64) {
        if pages != 0 {
            self.this_cpu().committed.add(pages);
        }
    }

    /// Pages that may come to need memory, of all address spaces: private ones that may be
    /// written, without `MAP_NORESERVE` (Linux: `Committed_AS`). Added up over all CPUs.
    pub fn committed(&self) -> u64 {
        let parts = self.cpus.iter().map(|cpu| cpu.committed.get());
        let sum = parts.fold(0, u64::wrapping_add);
        // Read one after the other, parts may not fit together.
        u64::try_from(sum.cast_signed()).unwrap_or(0)
    }

    /// Begins a read section on this CPU. Sections do not nest, and nothing
    /// parks inside one.
    #[inline]
    pub(crate) fn enter(&self) -> Section<'_> {
        self.domain
            .enter(&self.participants[self.machine.cpu().index()])
    }

    pub(crate) fn all_objects(&self) -> &object::Objects {
        &self.all_objects
    }

    pub(crate) fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    pub(crate) fn kept(&self) -> &IsolatedFrames {
        &self.kept
    }

    pub(crate) fn departing(&self) -> &Departing {
        &self.departing
    }

    /// What spaces park on that end while walks of stores are in them.
    pub(crate) fn visits_over(&self) -> &AtomicU32 {
        &self.visits_over
    }

    pub(crate) fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    #[inline]
    fn may_allocate(&self) -> Result<(), NoMemory> {
        if self.machine.may_allocate() {
            Ok(())
        } else {
            Err(NoMemory)
        }
    }

    #[inline]
    pub(crate) fn allocate_frame(&self) -> Result<Frame, NoMemory> {
        self.may_allocate()?;
        let allocate = || self.machine.frames().allocate_zeroed(self.machine.cpu());
        allocate().or_else(|none| self.after_compaction(none, allocate))
    }

    /// A frame with undefined content, for who fills all of it.
    #[inline]
    pub(crate) fn allocate_frame_to_fill(&self) -> Result<Frame, NoMemory> {
        self.may_allocate()?;
        let allocate = || self.machine.frames().allocate(self.machine.cpu());
        allocate().or_else(|none| self.after_compaction(none, allocate))
    }

    /// The same for compaction, which keeps some: not one of those.
    pub(crate) fn allocate_frame_beside_kept(&self) -> Result<Frame, NoMemory> {
        self.may_allocate()?;
        self.machine.frames().allocate(self.machine.cpu())
    }

    /// There was no frame: once more if compaction has kept some.
    #[cold]
    fn after_compaction(
        &self,
        none: NoMemory,
        allocate: impl Fn() -> Result<Frame, NoMemory>,
    ) -> Result<Frame, NoMemory> {
        match self.kept.give_up(&self.machine) {
            true => allocate(),
            false => Err(none),
        }
    }

    /// An empty table that nothing links yet.
    pub(crate) fn allocate_table(&self) -> Result<Frame, NoMemory> {
        self.may_allocate()?;
        let cpu = self.machine.cpu();
        let allocate = || self.machine.frames().allocate_zeroed(cpu);
        let frame = allocate().or_else(|_| {
            // What waits for readers may be enough.
            self.expedite();
            allocate()
        })?;
        self.make_table(frame);
        Ok(frame)
    }

    /// Makes a zeroed frame of the caller's an empty table.
    pub(crate) fn make_table(&self, frame: Frame) {
        self.machine
            .frames()
            .descriptor(frame)
            .set_flags(Flags::TABLE);
        // SAFETY: zeroed and the caller's alone.
        unsafe { Table::prepare(&self.machine, frame) };
    }

    pub(crate) fn allocate_node(&self) -> Result<NonNull<u8>, NoMemory> {
        self.allocate_object(&self.nodes, |cpu| &cpu.nodes)
    }

    pub(crate) fn allocate_split(&self) -> Result<NonNull<u8>, NoMemory> {
        self.allocate_object(&self.splits, |cpu| &cpu.splits)
    }

    /// A mapping of `space` that no slot leads to yet. It holds its store.
    pub(crate) fn allocate_mapping(
        &self,
        space: &AddressSpace<M>,
        attributes: Attributes,
    ) -> Result<NonNull<Mapping>, NoMemory> {
        let place = self
            .allocate_object(&self.mappings, |cpu| &cpu.mappings)?
            .cast::<Mapping>();
        // SAFETY: fresh memory of a mapping's size and alignment.
        unsafe { place.write(Mapping::new(attributes)) };
        if let Some(backed) = &attributes.backed {
            backed.cache().hold();
            // SAFETY: just made.
            self.link(unsafe { place.as_ref() }, backed, space);
        }
        Ok(place)
    }

    pub(crate) fn allocate_object_inner(&self) -> Result<NonNull<object::ObjectInner>, NoMemory> {
        let place = self.allocate_object(&self.stores, |cpu| &cpu.stores)?;
        Ok(place.cast())
    }

    pub(crate) fn allocate_radix_node(&self) -> Result<NonNull<u8>, NoMemory> {
        self.allocate_object(&self.radix_nodes, |cpu| &cpu.radix_nodes)
    }

    pub(crate) fn probes(&self) -> &Probes {
        &self.probes
    }

    pub(crate) fn allocate_probe(&self) -> Result<NonNull<list::Body>, NoMemory> {
        let place = self.allocate_object(&self.probe_bodies, |cpu| &cpu.probes)?;
        Ok(place.cast())
    }

    pub(crate) fn free_probe(&self, body: NonNull<list::Body>) {
        // SAFETY: as for nodes.
        unsafe { self.free_object(&self.probe_bodies, |cpu| &cpu.probes, body.cast()) };
    }

    fn allocate_object(
        &self,
        slab: &Slab,
        magazine: impl Fn(&PerCpu) -> &Magazine,
    ) -> Result<NonNull<u8>, NoMemory> {
        self.may_allocate()?;
        let cpu = self.machine.cpu();
        let magazine = magazine(&self.cpus[cpu.index()]);
        let allocate = || slab.allocate(cpu, magazine, self.machine.frames(), &self.machine);
        allocate().or_else(|_| {
            // What waits for readers may be enough.
            self.expedite();
            allocate()
        })
    }

    /// Gives back a node that nobody looks at.
    pub(crate) fn free_node(&self, node: NonNull<Node>) {
        // SAFETY: it came from this slab, and the caller has the last pointer.
        unsafe { self.free_object(&self.nodes, |cpu| &cpu.nodes, node.cast()) };
    }

    /// Gives back a split that nobody looks at.
    pub(crate) fn free_split(&self, split: NonNull<Split>) {
        // SAFETY: as for nodes.
        unsafe { self.free_object(&self.splits, |cpu| &cpu.splits, split.cast()) };
    }

    /// Gives back a mapping that nobody looks at, and lets go of its store.
    pub(crate) fn free_mapping(&self, mapping: NonNull<Mapping>) {
        // SAFETY: nobody else looks at it any more.
        let backed = unsafe { mapping.as_ref() }.attributes().backed;
        // SAFETY: as for nodes.
        unsafe { self.free_object(&self.mappings, |cpu| &cpu.mappings, mapping.cast()) };
        if let Some(backed) = backed {
            self.let_go(backed.pointer());
        }
    }

    pub(crate) fn free_object_inner(&self, cache: NonNull<object::ObjectInner>) {
        // SAFETY: as for nodes.
        unsafe { self.free_object(&self.stores, |cpu| &cpu.stores, cache.cast()) };
    }

    pub(crate) fn free_radix_node(&self, node: NonNull<object::Node>) {
        // SAFETY: as for nodes.
        unsafe { self.free_object(&self.radix_nodes, |cpu| &cpu.radix_nodes, node.cast()) };
    }

    /// Returns an object to its slab.
    ///
    /// # Safety
    /// It came from `slab`, and the caller has the last pointer.
    unsafe fn free_object(
        &self,
        slab: &Slab,
        magazine: impl Fn(&PerCpu) -> &Magazine,
        object: NonNull<u8>,
    ) {
        let cpu = self.machine.cpu();
        let magazine = magazine(&self.cpus[cpu.index()]);
        // SAFETY: passed on to the caller.
        unsafe { slab.free(cpu, magazine, object, self.machine.frames(), &self.machine) };
    }

    /// Gives something back once no reader can look at it any more.
    pub(crate) fn retire(&self, what: Retired) {
        let object = match what {
            Retired::Node(node) => node.as_ptr().expose_provenance() as u64 | NODE,
            Retired::Split(split) => split.as_ptr().expose_provenance() as u64 | SPLIT,
            Retired::Mapping(mapping) => mapping.as_ptr().expose_provenance() as u64 | MAPPING,
            Retired::Table(frame) => (frame.0 << 2) | TABLE,
        };
        // A mapping's pages may lie in parts of a space that have writers of their own (`set_range.rs`).
        let links = match what {
            Retired::Mapping(_) => Grace::Going,
            _ => Grace::Gone,
        };
        let cpu = self.machine.cpu();
        amortised(|| {
            self.domain
                .retire(cpu, self.participants, (object, links), self, &self.machine)
        });
    }

    /// Gives back whatever readers allow, because memory is short or because
    /// somebody counts. Inside a section it can give back little.
    pub fn expedite(&self) {
        self.kept.give_up(&self.machine);
        self.domain
            .expedite(self.machine.cpu(), self.participants, self, &self.machine);
    }

    /// Objects that wait for readers.
    pub fn deferred(&self) -> u64 {
        self.domain.deferred(self.participants, &self.machine)
    }

    /// Frames that hold nodes, splits, mappings, stores and probes.
    pub fn slab_frames(&self) -> u64 {
        let slabs = [
            &self.nodes,
            &self.splits,
            &self.mappings,
            &self.stores,
            &self.radix_nodes,
            &self.probe_bodies,
        ];
        slabs.iter().map(|slab| slab.frames()).sum()
    }

    /// Returns every CPU's cached objects to the slabs; when no CPU is in the
    /// core but the caller.
    pub fn drain(&self) {
        let cpu = self.machine.cpu();
        for part in self.cpus {
            let slabs = [
                (&self.nodes, &part.nodes),
                (&self.splits, &part.splits),
                (&self.mappings, &part.mappings),
                (&self.stores, &part.stores),
                (&self.radix_nodes, &part.radix_nodes),
                (&self.probe_bodies, &part.probes),
            ];
            for (slab, magazine) in slabs {
                slab.drain(cpu, magazine, self.machine.frames(), &self.machine);
            }
        }
    }
}

fn pointer<T>(object: u64) -> NonNull<T> {
    let address = (object & !KINDS) as usize;
    NonNull::new(core::ptr::with_exposed_provenance_mut(address)).unwrap_or(NonNull::dangling())
}

impl<M: Machine> Owner for Memory<M> {
    fn next(&self, object: u64) -> u64 {
        match object & KINDS {
            // SAFETY: a retired object stays what it is until it is released.
            NODE => unsafe { pointer::<Node>(object).as_ref() }.link.get(),
            // SAFETY: as above.
            SPLIT => unsafe { pointer::<Split>(object).as_ref() }.link.get(),
            // SAFETY: as above.
            MAPPING => unsafe { pointer::<Mapping>(object).as_ref() }.link().get(),
            _ => self.machine.frames().descriptor(Frame(object >> 2)).link(),
        }
    }

    fn set_next(&self, object: u64, next: u64) {
        match object & KINDS {
            // SAFETY: as above; readers never look at the link.
            NODE => unsafe { pointer::<Node>(object).as_ref() }.link.set(next),
            // SAFETY: as above.
            SPLIT => unsafe { pointer::<Split>(object).as_ref() }.link.set(next),
            // SAFETY: as above.
            MAPPING => unsafe { pointer::<Mapping>(object).as_ref() }
                .link()
                .set(next),
            _ => self
                .machine
                .frames()
                .descriptor(Frame(object >> 2))
                .set_link(next),
        }
    }

    fn release(&self, cpu: Cpu, object: u64) {
        match object & KINDS {
            NODE => self.free_node(pointer(object)),
            SPLIT => self.free_split(pointer(object)),
            MAPPING => self.free_mapping(pointer(object)),
            _ => self.machine.frames().free(cpu, Frame(object >> 2)),
        }
    }
}
