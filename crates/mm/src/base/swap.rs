//! The swap devices in use, their slots, and the pages on their way.
//!
//! A port adds a device by [`Memory::swap_on`]. Pages of anonymous memory are then written to it
//! ([`crate::reclaim`]), and an entry that names a slot takes the page's place
//! ([`faultless_paging::SwapEntry`]). The fault on it reads the page ([`crate::fault`]).
//!
//! * Devices are used in the order in which they were added: the first that has a free slot.
//! * Every page-table entry that names a slot is a *use* of it. So is a page-out until its page is written, and
//!   a swap-in from before it reads the slot until its entry is published. The last use frees the slot.
//! * While a swap-in has a use, the slot is not used again. So if the entry still names the slot afterwards,
//!   what was read is the entry's page (rule R4).
//! * A page that is being written is in its frame; a fault that needs it waits for the write with nothing held.
//!
//! *Writes*: what `faultless-swap` says for slots; once for each batch of writes the device's count of these.

use core::ptr::NonNull;

use faultless_frames::FrameSource;
use faultless_paging::{EntryFormat, Frame, PAGE_SIZE, PhysicalMemory, SwapEntry};
use faultless_swap::{
    DeviceError, Page, SlotCache, SlotPage, SlotPages, Slots, SwapDevice, SwapMachine,
};
use faultless_sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use faultless_sync::{Cpu, Mutant, Wait, mutant};
use faultless_trace::Counter;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::memory::Memory;

/// The most devices at a time.
const SWAP_DEVICES: usize = 4;

const _: () = assert!(SWAP_DEVICES <= SwapEntry::DEVICES as usize);

/// The machine, as the slots need it.
pub(crate) struct Below<M: Machine>(&'static M);

impl<M: Machine> PhysicalMemory for Below<M> {
    fn pointer(&self, frame: Frame) -> NonNull<u8> {
        self.0.pointer(frame)
    }
    fn zero(&self, frame: Frame) {
        self.0.zero(frame);
    }
}

impl<M: Machine> Wait for Below<M> {
    fn relax(&self, turn: u32) {
        self.0.relax(turn);
    }
    fn poll(&self) {
        self.0.poll();
    }
    fn park(&self, word: &AtomicU32, expected: u32) {
        self.0.park(word, expected);
    }
    fn wake(&self, word: &AtomicU32, count: u32) {
        self.0.wake(word, count);
    }
}

impl<M: Machine> SwapMachine for Below<M> {
    type Frames = M::Frames;
    fn frames(&self) -> &Self::Frames {
        self.0.frames()
    }
    fn cpu(&self) -> Cpu {
        self.0.cpu()
    }
}

/// A device in use.
struct SwapArea<M: Machine> {
    device: &'static dyn SwapDevice,
    slots: Slots<Below<M>>,
    pages: SlotPages<Below<M>>,
    /// Goes up when pages were written. A swap-in that waits for one parks on it.
    written: AtomicU32,
    /// Its own frame.
    frame: Frame,
}

/// The devices in use, by number.
pub(crate) struct SwapAreas<M: Machine>([AtomicPtr<SwapArea<M>>; SWAP_DEVICES]);

/// A use of a slot.
pub(crate) struct HeldSlot {
    pub(crate) entry: SwapEntry,
}

/// What a slot's last use discards: what the device has, or the frame in which the page was kept.
struct Content<'a, M: Machine> {
    memory: &'a Memory<M>,
    area: &'a SwapArea<M>,
}

impl<M: Machine> SwapDevice for Content<'_, M> {
    fn slots(&self) -> u64 {
        self.area.device.slots()
    }
    fn write(&self, slot: u64, page: &Page) -> Result<(), DeviceError> {
        self.area.device.write(slot, page)
    }
    fn read(&self, slot: u64, page: &mut Page) -> Result<(), DeviceError> {
        self.area.device.read(slot, page)
    }
    fn discard(&self, slot: u64) {
        match self.area.pages.get(slot) {
            // Taken back before it had a page.
            SlotPage::NotWritten => return,
            SlotPage::Written => self.area.device.discard(slot),
            SlotPage::Kept(frame) => self.memory.free_swapped(frame),
        }
        self.area.pages.set(slot, SlotPage::NotWritten);
    }
    fn is_fast(&self) -> bool {
        self.area.device.is_fast()
    }
}

impl<M: Machine> SwapAreas<M> {
    pub(crate) fn new() -> Self {
        Self(core::array::from_fn(|_| {
            AtomicPtr::new(core::ptr::null_mut())
        }))
    }

    fn area(&self, number: u32) -> Option<&SwapArea<M>> {
        // Acquire: pairs with the compare-and-swap in `swap_on`.
        let area = self.0.get(number as usize)?.load(Ordering::Acquire);
        // SAFETY: an area in use is not freed.
        NonNull::new(area).map(|area| unsafe { area.as_ref() })
    }

    fn all(&self) -> impl Iterator<Item = &SwapArea<M>> {
        (0..SWAP_DEVICES as u32).map_while(|number| self.area(number))
    }

    /// Whether there is a device.
    pub(crate) fn is_on(&self) -> bool {
        self.area(0).is_some()
    }
}

impl<M: Machine> Memory<M> {
    /// Begins to use a swap device, after those that are in use. `cpus` has a part for each CPU, new, which no
    /// other device uses. Returns the device's number.
    ///
    /// # Errors
    /// `ENOMEM` without memory for its slots; `EPERM` if too many devices are in use; `EINVAL` for a device
    /// without slots.
    pub fn swap_on(
        &'static self,
        device: &'static dyn SwapDevice,
        cpus: &'static [SlotCache],
    ) -> Result<u32, Errno> {
        let count = device.slots().min(M::Format::FORMAT.slots());
        if count == 0 || cpus.len() < self.cpus().len() {
            return Err(Errno::EINVAL);
        }
        let machine = || Below(self.machine());
        let slots = Slots::new(machine(), cpus, count)?;
        let pages = SlotPages::new(machine(), count)?;
        const { assert!(size_of::<SwapArea<M>>() <= PAGE_SIZE as usize) };
        let frame = self.take_space_frame()?;
        let area = self.machine().pointer(frame).cast::<SwapArea<M>>();
        // SAFETY: a frame that only this function uses, large enough and aligned.
        unsafe {
            area.write(SwapArea {
                device,
                slots,
                pages,
                written: AtomicU32::new(0),
                frame,
            });
        }
        for (number, place) in (0..).zip(&self.swap.0) {
            // Release: pairs with the acquire in `area`.
            let added = place.compare_exchange(
                core::ptr::null_mut(),
                area.as_ptr(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if added.is_ok() {
                return Ok(number);
            }
        }
        // SAFETY: written above, and found by nothing.
        unsafe { area.drop_in_place() };
        self.give_space_frame(frame);
        Err(Errno::EPERM)
    }

    /// Frees what the devices' slots take, with the last use of this memory core.
    ///
    /// # Safety
    /// Nothing else uses the core, and no entry names a slot.
    pub unsafe fn end_swap(&self) {
        for place in &self.swap.0 {
            let area = place.swap(core::ptr::null_mut(), Ordering::AcqRel);
            if let Some(area) = NonNull::new(area) {
                // SAFETY: written by `swap_on`, and not used any more.
                let frame = unsafe {
                    let frame = area.as_ref().frame;
                    area.drop_in_place();
                    frame
                };
                self.give_space_frame(frame);
            }
        }
    }

    /// Allocates a slot for a page that is about to be written, with a use for its entry and one for the
    /// write.
    pub(crate) fn allocate_slot(&self) -> Option<SwapEntry> {
        for (device, area) in (0..).zip(self.swap.all()) {
            let Some(slot) = area.slots.allocate() else {
                continue;
            };
            let entry = SwapEntry {
                device,
                slot,
                is_exclusive: true,
                is_soft_dirty: true,
                reports_writes: false,
            };
            if area.slots.add_use(slot).is_ok() {
                return Some(entry);
            }
            self.drop_slot_use(&entry);
        }
        None
    }

    /// Frees a slot that was allocated, and that no entry has named yet.
    pub(crate) fn take_back_slot(&self, entry: &SwapEntry) {
        self.drop_slot_use(entry);
        self.drop_slot_use(entry);
    }

    /// Writes the page of a slot to its device, and drops the use of the write. A page that the device does not
    /// take stays in its frame until the slot is freed. [`Memory::end_writes`] follows. Returns whether the device
    /// has taken it.
    pub(crate) fn write_slot(&self, entry: &SwapEntry, frame: Frame) -> bool {
        let Some(area) = self.swap.area(entry.device) else {
            return false;
        };
        // SAFETY: nothing writes the page: no entry shows it, and nothing has pinned it.
        let page = unsafe { self.machine().pointer(frame).cast::<Page>().as_ref() };
        let is_written = area.device.write(entry.slot, page).is_ok();
        if is_written {
            area.pages.set(entry.slot, SlotPage::Written);
            self.count(Counter::SwapOut);
            self.free_swapped(frame);
        } else {
            area.pages.set(entry.slot, SlotPage::Kept(frame));
        }
        self.drop_slot_use(entry);
        is_written
    }

    /// Wakes what waits for pages that were written to a device.
    pub(crate) fn end_writes(&self, device: u32) {
        if let Some(area) = self.swap.area(device) {
            // Release: a woken thread sees where the pages are.
            area.written.fetch_add(1, Ordering::Release);
            self.machine().wake(&area.written, u32::MAX);
        }
    }

    /// Adds the use of an entry that names the same slot as another one. Returns whether there was room for it.
    pub(crate) fn share_slot(&self, entry: &SwapEntry) -> bool {
        let area = self.swap.area(entry.device);
        area.is_some_and(|area| area.slots.add_use(entry.slot).is_ok())
    }

    /// Adds a use of the slot that an entry names, or named. `None`: the slot is free now.
    pub(crate) fn hold_slot(&self, entry: &SwapEntry) -> Option<HeldSlot> {
        let is_used = self.share_slot(entry);
        if is_used && mutant(Mutant::SlotNotHeld) {
            self.drop_slot_use(entry);
        }
        is_used.then_some(HeldSlot { entry: *entry })
    }

    /// Drops the use of a held slot.
    pub(crate) fn release_slot(&self, held: HeldSlot) {
        if !mutant(Mutant::SlotNotHeld) {
            self.drop_slot_use(&held.entry);
        }
    }

    /// Reads the page of a held slot, which an entry has named meanwhile, into a frame that only the caller uses.
    /// Waits for the device, and for a write of the page.
    ///
    /// # Errors
    /// `EIO`: the device failed, or what it has is damaged.
    pub(crate) fn read_slot(&self, held: &HeldSlot, frame: Frame) -> Result<(), Errno> {
        let (machine, slot) = (self.machine(), held.entry.slot);
        let area = self.swap.area(held.entry.device).ok_or(Errno::EIO)?;
        loop {
            // Acquire: pairs with the release in `end_writes`.
            let seen = area.written.load(Ordering::Acquire);
            match area.pages.get(slot) {
                // The page-out that has put the slot into the entry ends the wait.
                SlotPage::NotWritten => machine.park(&area.written, seen),
                // The frame stays until the last use of the slot has gone.
                SlotPage::Kept(kept) => {
                    machine.copy(kept, frame);
                    return Ok(());
                }
                SlotPage::Written => break,
            }
        }
        // SAFETY: the caller's frame.
        let page = unsafe { machine.pointer(frame).cast::<Page>().as_mut() };
        area.device.read(slot, page).map_err(|_| Errno::EIO)?;
        self.count(Counter::SwapIn);
        Ok(())
    }

    /// Drops a use of a slot, and frees the slot with the last.
    pub(crate) fn drop_slot_use(&self, entry: &SwapEntry) {
        if let Some(area) = self.swap.area(entry.device) {
            let content = Content { memory: self, area };
            area.slots.remove_use(entry.slot, &content);
        }
    }

    /// Frees the frame of a page that was swapped out.
    fn free_swapped(&self, frame: Frame) {
        let source = self.machine().frames();
        if source.descriptor(frame).unmap() {
            source.free(self.machine().cpu(), frame);
        }
    }

    /// Returns the uses of a slot.
    pub(crate) fn slot_uses(&self, entry: &SwapEntry) -> u64 {
        let area = self.swap.area(entry.device);
        area.map_or(0, |area| area.slots.uses(entry.slot).into())
    }

    /// Returns the number of slots of all devices, and how many are used.
    pub fn swap_usage(&self) -> (u64, u64) {
        let all = self
            .swap
            .all()
            .map(|area| (area.slots.slots(), area.slots.used()));
        all.fold((0, 0), |(slots, used), (more, more_used)| {
            (slots + more, used + more_used)
        })
    }

    /// Calls `visit` with the frames of the devices' slots, and with those in which pages are kept: for these
    /// with `true`. Nothing is at work.
    pub(crate) fn for_each_swap_frame(&self, visit: &mut dyn FnMut(Frame, bool)) {
        for area in self.swap.all() {
            visit(area.frame, false);
            area.slots.for_each_frame(&mut |frame| visit(frame, false));
            area.pages.for_each_frame(&mut |frame| visit(frame, false));
            let mut from = 0;
            while let Some(slot) = area.slots.next_used(from) {
                from = slot + 1;
                if let SlotPage::Kept(frame) = area.pages.get(slot) {
                    visit(frame, true);
                }
            }
        }
    }
}
