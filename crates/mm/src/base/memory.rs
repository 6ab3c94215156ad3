//! The memory core of a machine, which all its address spaces share: the machine, each CPU's part,
//! reclamation, and the slabs and lists of every kind of object.
//!
//! * An object's kind ([`Kind`]) says how large it is, where its link lies, and how it is released. The rooms
//!   above define the kinds; this one only stores them.
//! * Every allocation is fallible, and tries once more after [`Memory::expedite`].
//!
//! *Writes*: this CPU's [`PerCpu`]; slabs, lists and the epoch once per batch. A fault writes nothing else
//! here.

use core::ptr::NonNull;

use faultless_frames::{Flags, FrameSource, Magazine, NoMemory, Reserve, Slab};
use faultless_paging::{Frame, Table};
use faultless_sync::atomic::{AtomicU32, AtomicU64, Local, Ordering, amortised};
use faultless_sync::reclaim::{Domain, Grace, Owner, Participant, Section};
use faultless_sync::{Cpu, Padded, SpinLock};
use faultless_trace::{Counter, Counters, Tracer};

use crate::base::departing::Departing;
use crate::base::huge::{HugeMode, HugeScanSetting, HugeSettings};
use crate::base::isolated::IsolatedFrames;
use crate::base::list::{CountedList, List};
use crate::base::machine::Machine;
use crate::base::places::SwapPlaces;

/// One CPU's part of the memory core. A port makes one for each CPU.
#[derive(Default)]
#[repr(align(128))]
pub struct PerCpu {
    counters: Counters,
    tracer: Tracer,
    magazines: [Magazine; Kind::COUNT],
    /// This CPU's part of the committed pages: a difference, which wraps.
    committed: Local,
    /// This CPU's part of the entries that map huge pages: a difference, which wraps.
    huge: Local,
    /// The same of huge pages that memory objects have.
    object_huge: Local,
    /// The same of the entries that map those.
    object_huge_maps: Local,
}

impl PerCpu {
    /// A CPU that has done nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the CPU's counters.
    #[inline]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the CPU's recorder of events and latencies.
    #[inline]
    pub fn tracer(&self) -> &Tracer {
        &self.tracer
    }
}

/// The kinds of objects. The first four can be retired, and their numbers are the tags of retired objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Kind {
    Node,
    Mapping,
    /// No slab: a page table is a frame.
    Table,
    Split,
    Object,
    RadixNode,
    Probe,
    Userfault,
}

impl Kind {
    const COUNT: usize = 8;
    /// The mask of the tag in a retired object's word.
    const TAGS: u64 = 3;
    /// The kinds that come from slabs.
    const OF_SLABS: [Kind; 7] = [
        Kind::Node,
        Kind::Mapping,
        Kind::Split,
        Kind::Object,
        Kind::RadixNode,
        Kind::Probe,
        Kind::Userfault,
    ];
}

/// What the core has to know about a kind of object.
pub(crate) struct Shape<M: Machine> {
    /// Bytes.
    pub(crate) size: usize,
    /// The offset of the reclamation link, for a kind that can be retired.
    pub(crate) link: usize,
    /// Releases an object that no reader can look at any more.
    pub(crate) release: fn(&Memory<M>, NonNull<u8>),
}

impl<M: Machine> Shape<M> {
    /// A kind that is never retired.
    pub(crate) const fn plain(size: usize) -> Self {
        Self {
            size,
            link: 0,
            release: |_, _| (),
        }
    }
}

/// The memory core of a machine.
pub struct Memory<M: Machine> {
    machine: M,
    cpus: &'static [PerCpu],
    participants: &'static [Participant],
    domain: Padded<Domain>,
    shapes: [Shape<M>; Kind::COUNT],
    slabs: [Padded<Slab>; Kind::COUNT],
    /// Memory objects ([`crate::object`]).
    pub(crate) objects: Padded<SpinLock<List>>,
    /// Userfaultfds ([`crate::base::userfault`]).
    pub(crate) userfaults: Padded<SpinLock<List>>,
    /// Address spaces ([`crate::rmap::anon`]).
    pub(crate) spaces: Padded<SpinLock<List>>,
    /// Probes ([`crate::object::probe`]).
    pub(crate) probes: Padded<CountedList>,
    pub(crate) isolated: Padded<IsolatedFrames>,
    /// Counts the times that the last walk left a space that waits to end.
    pub(crate) visits_over: Padded<AtomicU32>,
    pub(crate) departing: Departing,
    next_id: Padded<AtomicU64>,
    /// Swap devices ([`crate::swap`]).
    pub(crate) swap: SwapPlaces,
    /// Where huge pages are used. Seldom written.
    pub(crate) huge: Padded<HugeSettings>,
}

impl<M: Machine> Memory<M> {
    /// Makes the memory core of `machine`, with objects of these shapes.
    pub(crate) fn with_shapes(
        machine: M,
        cpus: &'static [PerCpu],
        participants: &'static [Participant],
        shapes: [Shape<M>; Kind::COUNT],
    ) -> Self {
        let slabs = core::array::from_fn(|kind| Padded(Slab::new(shapes[kind].size)));
        Self {
            machine,
            cpus,
            participants,
            domain: Padded(Domain::new()),
            shapes,
            slabs,
            // Each on a source line of its own: the lock order identifies a lock by where it is made
            // (`faultless_sync::order`).
            objects: Padded(SpinLock::new(List::new())),
            userfaults: Padded(SpinLock::new(List::new())),
            spaces: Padded(SpinLock::new(List::new())),
            probes: Padded(CountedList::new()),
            isolated: Padded(IsolatedFrames::new()),
            visits_over: Padded(AtomicU32::new(0)),
            departing: Departing::new(),
            next_id: Padded(AtomicU64::new(1)),
            swap: SwapPlaces::new(),
            huge: Padded(HugeSettings::new()),
        }
    }

    /// Returns the machine.
    #[inline]
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Lets the calling CPU take part in reclamation.
    pub fn online(&self, cpu: Cpu) {
        self.domain.online(cpu);
    }

    /// Takes a CPU out of reclamation. It must not call into the core until it is online again.
    pub fn offline(&self, cpu: Cpu) {
        self.domain.offline(cpu);
    }

    /// Returns this CPU's part.
    #[inline]
    pub fn this_cpu(&self) -> &PerCpu {
        &self.cpus[self.machine.cpu().index()]
    }

    /// Returns every CPU's part.
    pub fn cpus(&self) -> &'static [PerCpu] {
        self.cpus
    }

    /// Increments a counter of this CPU.
    #[inline]
    pub fn count(&self, counter: Counter) {
        self.this_cpu().counters.count(counter);
    }

    /// Returns a counter, summed over all CPUs.
    pub fn total(&self, counter: Counter) -> u64 {
        self.cpus.iter().map(|cpu| cpu.counters.get(counter)).sum()
    }

    /// Adds to the committed pages; a difference, which wraps.
    #[inline]
    pub(crate) fn commit(&self, pages: u64) {
        if pages != 0 {
            self.this_cpu().committed.add(pages);
        }
    }

    /// Adds to the entries that map huge pages; a difference, which wraps. Those of the pool are not counted.
    pub(crate) fn count_huge(&self, first: Frame, entries: u64) {
        if !self.machine.frames().is_pooled(first) {
            self.this_cpu().huge.add(entries);
        }
    }

    /// Returns how many entries map huge pages, of all address spaces, the huge zero page not counted (Linux:
    /// `nr_anon_transparent_hugepages`).
    pub fn huge_pages(&self) -> u64 {
        let parts = self.cpus.iter().map(|cpu| cpu.huge.get());
        let sum = parts.fold(0, u64::wrapping_add);
        // As for `committed`.
        u64::try_from(sum.cast_signed()).unwrap_or(0)
    }

    /// Adds to the huge pages of memory objects; likewise.
    pub(crate) fn count_object_huge(&self, first: Frame, pages: u64) {
        if !self.machine.frames().is_pooled(first) {
            self.this_cpu().object_huge.add(pages);
        }
    }

    /// Adds to the entries that map them; likewise.
    pub(crate) fn count_object_huge_maps(&self, first: Frame, entries: u64) {
        if !self.machine.frames().is_pooled(first) {
            self.this_cpu().object_huge_maps.add(entries);
        }
    }

    /// Returns how many huge pages memory objects have, and how many entries map them (Linux: `ShmemHugePages` and
    /// `ShmemPmdMapped`, in huge pages).
    pub fn object_huge_pages(&self) -> (u64, u64) {
        let sum = |of: &dyn Fn(&PerCpu) -> u64| {
            let sum = self.cpus.iter().map(of).fold(0, u64::wrapping_add);
            // As for `committed`.
            u64::try_from(sum.cast_signed()).unwrap_or(0)
        };
        (
            sum(&|cpu| cpu.object_huge.get()),
            sum(&|cpu| cpu.object_huge_maps.get()),
        )
    }

    /// Returns the pages that may come to need memory, of all address spaces: private and writable ones
    /// without `MAP_NORESERVE` (Linux: `Committed_AS`). Summed over all CPUs.
    pub fn committed(&self) -> u64 {
        let parts = self.cpus.iter().map(|cpu| cpu.committed.get());
        let sum = parts.fold(0, u64::wrapping_add);
        // The parts are read one after the other, and may not fit together.
        u64::try_from(sum.cast_signed()).unwrap_or(0)
    }

    /// Enters a read section on this CPU. Sections do not nest, and nothing parks inside one.
    #[inline]
    pub fn enter(&self) -> Section<'_> {
        self.domain
            .enter(&self.participants[self.machine.cpu().index()])
    }

    /// Enters a read section, if this CPU is not in one.
    pub(crate) fn enter_if_outside(&self) -> Option<Section<'_>> {
        let is_inside = self.participants[self.machine.cpu().index()].is_inside();
        (!is_inside).then(|| self.enter())
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

    /// Allocates a frame with undefined content, for a caller that fills all of it.
    #[inline]
    pub(crate) fn allocate_frame_to_fill(&self) -> Result<Frame, NoMemory> {
        self.may_allocate()?;
        let allocate = || self.machine.frames().allocate(self.machine.cpu());
        allocate().or_else(|none| self.after_compaction(none, allocate))
    }

    /// As [`Memory::allocate_frame_to_fill`], for compaction: takes no isolated frame.
    pub(crate) fn allocate_frame_beside_kept(&self) -> Result<Frame, NoMemory> {
        self.may_allocate()?;
        self.machine.frames().allocate(self.machine.cpu())
    }

    /// Allocates once more if compaction has isolated frames.
    #[cold]
    fn after_compaction(
        &self,
        none: NoMemory,
        allocate: impl Fn() -> Result<Frame, NoMemory>,
    ) -> Result<Frame, NoMemory> {
        match self.isolated.give_up(&self.machine) {
            true => allocate(),
            false => Err(none),
        }
    }

    /// Allocates the frames of a huge page, with undefined content. Looks for no memory.
    pub(crate) fn allocate_huge(&self) -> Result<Frame, NoMemory> {
        self.may_allocate()?;
        self.machine.frames().allocate_huge(self.machine.cpu())
    }

    /// Allocates a table for the split of a huge page, which fills all of it. It comes from no reserve.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn allocate_deposit(&self) -> Result<Frame, NoMemory> {
        let frame = self.allocate_frame_to_fill()?;
        // SAFETY: only the caller uses it.
        unsafe { Table::prepare(&self.machine, frame) };
        let descriptor = self.machine.frames().descriptor(frame);
        descriptor.set_flags(Flags::TABLE);
        Ok(frame)
    }

    /// Frees them.
    pub(crate) fn free_huge(&self, first: Frame) {
        self.machine.frames().free_huge(self.machine.cpu(), first);
    }

    /// Sets which mappings get huge pages from now on. What is mapped stays as it is.
    pub fn set_huge_mode(&self, mode: HugeMode) {
        self.huge.set_mode(mode);
        self.call_huge_scan();
    }

    /// Returns which mappings get huge pages.
    pub fn huge_mode(&self) -> HugeMode {
        self.huge.mode()
    }

    /// Sets which mappings of shared memory get huge pages, and which objects ([`crate::ObjectHuge::AsSet`]).
    pub fn set_shared_huge_mode(&self, mode: HugeMode) {
        self.huge.set_shared_mode(mode);
    }

    /// Returns which do.
    pub fn shared_huge_mode(&self) -> HugeMode {
        self.huge.shared_mode()
    }

    /// Returns a setting of the scan that makes huge pages in the background.
    pub fn huge_scan_setting(&self, which: HugeScanSetting) -> u32 {
        self.huge.of_scan(which)
    }

    /// Changes it. Returns whether it may have that value.
    pub fn set_huge_scan(&self, which: HugeScanSetting, value: u32) -> bool {
        let is_set = self.huge.set_of_scan(which, value);
        if is_set {
            self.call_huge_scan();
        }
        is_set
    }

    /// Returns the word that changes, with a wake, when the thread that scans has a reason to look before its time.
    pub fn huge_scan_calls(&self) -> &AtomicU32 {
        &self.huge.scan.calls
    }

    /// Wakes that thread.
    pub(crate) fn call_huge_scan(&self) {
        // SeqCst: pairs with the thread's look at the word before it parks.
        self.huge.scan.calls.fetch_add(1, Ordering::SeqCst);
        self.machine.wake(&self.huge.scan.calls, u32::MAX);
    }

    /// Returns how many tables the scan has collapsed, and how often it went through all spaces.
    pub fn huge_scanned(&self) -> (u32, u32) {
        let scan = &self.huge.scan;
        let [collapsed, rounds] =
            [&scan.collapsed, &scan.rounds].map(|count| count.load(Ordering::Relaxed));
        (collapsed, rounds)
    }

    /// Sets whether reads of memory that was never written map the shared huge zero page (at first: yes).
    pub fn set_huge_zero_page(&self, is_used: bool) {
        self.huge.set_reads_share(is_used);
    }

    /// Whether they do.
    pub fn huge_zero_page(&self) -> bool {
        self.huge.reads_share()
    }

    /// Allocates an empty table that nothing links yet, in a zeroed frame.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn allocate_table(&self) -> Result<Frame, NoMemory> {
        self.may_allocate()?;
        let cpu = self.machine.cpu();
        let allocate = || self.machine.frames().allocate_zeroed(cpu);
        let frame = allocate().or_else(|_| {
            // Releasing deferred objects may be enough.
            self.expedite();
            allocate().or_else(|_| {
                let frame = self
                    .machine
                    .frames()
                    .allocate_reserved(cpu, Reserve::Kernel)?;
                self.machine.zero(frame);
                Ok(frame)
            })
        })?;
        self.make_table(frame);
        Ok(frame)
    }

    /// Allocates a frame for something that lives as long as a space. It may be one that is kept from programs' pages.
    pub(crate) fn take_space_frame(&self) -> Result<Frame, NoMemory> {
        let (source, cpu) = (self.machine.frames(), self.machine.cpu());
        let reserved = || source.allocate_reserved(cpu, Reserve::Kernel);
        let frame = self.allocate_frame_to_fill().or_else(|none| {
            self.may_allocate().map_err(|_| none)?;
            reserved()
        })?;
        let descriptor = self.machine.frames().descriptor(frame);
        descriptor.set_flags(Flags::SPACE);
        Ok(frame)
    }

    /// Frees a frame from [`Memory::take_space_frame`].
    pub(crate) fn give_space_frame(&self, frame: Frame) {
        let source = self.machine.frames();
        source.descriptor(frame).set_flags(Flags::NONE);
        source.free(self.machine.cpu(), frame);
    }

    /// Makes an empty table of a zeroed frame that the caller owns.
    pub(crate) fn make_table(&self, frame: Frame) {
        self.machine
            .frames()
            .descriptor(frame)
            .set_flags(Flags::TABLE);
        // SAFETY: zeroed, and only the caller uses it.
        unsafe { Table::prepare(&self.machine, frame) };
    }

    /// Allocates memory for an object of a kind.
    pub(crate) fn allocate(&self, kind: Kind) -> Result<NonNull<u8>, NoMemory> {
        self.may_allocate()?;
        let cpu = self.machine.cpu();
        let magazine = &self.cpus[cpu.index()].magazines[kind as usize];
        let slab = &self.slabs[kind as usize];
        let allocate = || slab.allocate(cpu, magazine, self.machine.frames(), &self.machine);
        allocate().or_else(|_| {
            // Releasing deferred objects may be enough.
            self.expedite();
            allocate()
        })
    }

    /// Frees the memory of an object.
    ///
    /// # Safety
    /// It was allocated as that kind, and the caller has the last pointer to it.
    pub(crate) unsafe fn free(&self, kind: Kind, object: NonNull<u8>) {
        let cpu = self.machine.cpu();
        let magazine = &self.cpus[cpu.index()].magazines[kind as usize];
        let slab = &self.slabs[kind as usize];
        // SAFETY: passed on to the caller.
        unsafe { slab.free(cpu, magazine, object, self.machine.frames(), &self.machine) };
    }

    /// Releases, as its kind says, a mapping that no reader looks at.
    pub(crate) fn release_mapping(&self, mapping: NonNull<impl Sized>) {
        (self.shapes[Kind::Mapping as usize].release)(self, mapping.cast());
    }

    /// Retires an unlinked object: it is released once no reader can look at it any more. Its kind is one
    /// that can be retired.
    ///
    /// # Safety
    /// It was allocated as that kind, and is retired once.
    pub(crate) unsafe fn retire(&self, kind: Kind, object: NonNull<u8>) {
        // A mapping can have pages in two lock domains. The writers of both unlink it concurrently, each in a
        // section (`crate::lock::edit`).
        let grace = match kind {
            Kind::Mapping => Grace::Going,
            _ => Grace::Gone,
        };
        self.retire_word(
            object.as_ptr().expose_provenance() as u64 | kind as u64,
            grace,
        );
    }

    /// Retires a page table that nothing links any more, or another frame that readers may look at: it is freed once all
    /// sections have ended that may have found it.
    pub fn retire_table(&self, frame: Frame) {
        self.retire_word((frame.0 << 2) | Kind::Table as u64, Grace::Gone);
    }

    fn retire_word(&self, object: u64, grace: Grace) {
        let cpu = self.machine.cpu();
        amortised(|| {
            self.domain
                .retire(cpu, self.participants, (object, grace), self, &self.machine)
        });
    }

    /// Releases what readers allow: for an allocation that has failed, or for an exact count. Inside a
    /// section it can release little.
    pub fn expedite(&self) {
        self.isolated.give_up(&self.machine);
        self.domain
            .expedite(self.machine.cpu(), self.participants, self, &self.machine);
    }

    /// Returns how many retired objects wait for readers.
    pub fn deferred(&self) -> u64 {
        self.domain.deferred(self.participants, &self.machine)
    }

    /// Returns how many frames hold nodes, splits, mappings, objects and probes.
    pub fn slab_frames(&self) -> u64 {
        self.slabs.iter().map(|slab| slab.frames()).sum()
    }

    /// Returns every CPU's cached objects to the slabs. The caller's CPU must be the only one in the core.
    pub fn drain(&self) {
        let cpu = self.machine.cpu();
        for part in self.cpus {
            for kind in Kind::OF_SLABS {
                let (slab, magazine) = (&self.slabs[kind as usize], &part.magazines[kind as usize]);
                slab.drain(cpu, magazine, self.machine.frames(), &self.machine);
            }
        }
    }

    /// Returns the link of a retired object that is no table.
    fn link_of(&self, object: u64) -> &Local {
        let shape = &self.shapes[(object & Kind::TAGS) as usize];
        let link = (object & !Kind::TAGS) as usize + shape.link;
        // SAFETY: a retired object stays what it is until it is released, and its kind says where its
        // link lies. Readers never look at the link.
        unsafe { &*core::ptr::with_exposed_provenance(link) }
    }
}

const TABLE: u64 = Kind::Table as u64;

impl<M: Machine> Owner for Memory<M> {
    fn next(&self, object: u64) -> u64 {
        match object & Kind::TAGS {
            TABLE => self.machine.frames().descriptor(Frame(object >> 2)).link(),
            _ => self.link_of(object).get(),
        }
    }

    fn set_next(&self, object: u64, next: u64) {
        match object & Kind::TAGS {
            TABLE => {
                let descriptor = self.machine.frames().descriptor(Frame(object >> 2));
                descriptor.set_link(next);
            }
            _ => self.link_of(object).set(next),
        }
    }

    fn release(&self, cpu: Cpu, object: u64) {
        let kind = object & Kind::TAGS;
        if kind == TABLE {
            return self.machine.frames().free(cpu, Frame(object >> 2));
        }
        let address = core::ptr::with_exposed_provenance_mut((object & !Kind::TAGS) as usize);
        if let Some(object) = NonNull::new(address) {
            (self.shapes[kind as usize].release)(self, object);
        }
    }
}
