//! How the use of a device begins and ends, and which device is used first.
//!
//! * A device is *off*, *on*, or *leaving*: it gives no slots, and those that are used come back
//!   ([`Memory::swap_off`]).
//! * Devices with a higher priority are used first; of the same priority, those with a lower number. Without a priority a
//!   device comes after all others: as on Linux it gets the next negative one.
//! * All of this changes under one lock. An allocation reads the order alone.
//!
//! *Writes*: the places ([`crate::base::places`]), and each device's state and priority.

use core::ptr::NonNull;

use faultless_paging::{EntryFormat, PAGE_SIZE};
use faultless_swap::{SlotCache, SlotPages, Slots, SwapDevice};
use faultless_sync::atomic::{AtomicU32, Ordering, fence};

use super::SwapArea;
use super::below::Below;
use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::base::places::SWAP_DEVICES;

/// The state of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum State {
    Off,
    On,
    Leaving,
}

/// A device in use, as `/proc/swaps` shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwapUsage {
    /// Its number.
    pub number: u32,
    /// Its slots.
    pub slots: u64,
    /// Those in use.
    pub used: u64,
    /// Its priority.
    pub priority: i32,
}

impl<M: Machine> SwapArea<M> {
    fn state(&self) -> State {
        match self.state.load(Ordering::Relaxed) {
            0 => State::Off,
            1 => State::On,
            _ => State::Leaving,
        }
    }

    fn set_state(&self, state: State) {
        self.state.store(state as u32, Ordering::Relaxed);
    }

    /// Whether it gives slots. Called by an allocation that has taken one, after a full fence.
    pub(super) fn is_on(&self) -> bool {
        self.state() == State::On
    }

    fn priority(&self) -> i32 {
        self.priority.load(Ordering::Relaxed).cast_signed()
    }

    fn set_priority(&self, priority: i32) {
        self.priority
            .store(priority.cast_unsigned(), Ordering::Relaxed);
    }
}

impl<M: Machine> Memory<M> {
    /// Begins to use a swap device. `cpus` has a part for each CPU, which no other device uses, and which is new the
    /// first time. Without a priority, the device is used after all others. Returns the device's number.
    ///
    /// # Errors
    /// `ENOMEM` without memory for its slots; `EPERM` if too many devices are or were in use; `EBUSY` for a device that
    /// is in use; `EINVAL` for a device without slots.
    pub fn swap_on(
        &'static self,
        device: &'static dyn SwapDevice,
        cpus: &'static [SlotCache],
        priority: Option<u16>,
    ) -> Result<u32, Errno> {
        let count = device.slots().min(M::Format::FORMAT.slots());
        if count == 0 || cpus.len() < self.cpus().len() {
            return Err(Errno::EINVAL);
        }
        let made = match self.number_of(device) {
            Some(_) => None,
            None => Some(self.make_area(device, cpus, count)?),
        };
        let change = self.swap.change.lock(self.machine());
        let number = self.number_of(device).or_else(|| self.free_number());
        let result = number.ok_or(Errno::EPERM).and_then(|number| {
            if let Some(area) = made
                && self.swap_area(number).is_none()
            {
                // Release: pairs with the acquire in `swap_area`.
                let place = &self.swap.areas[number as usize];
                place.store(area.as_ptr().cast(), Ordering::Release);
            }
            let area = self.swap_area(number).ok_or(Errno::EPERM)?;
            if area.state() != State::Off {
                return Err(Errno::EBUSY);
            }
            self.turn_on(area, priority.map(i32::from));
            Ok(number)
        });
        drop(change);
        let is_placed = |area: NonNull<SwapArea<M>>| {
            let place = number.and_then(|number| self.swap_area(number));
            place.is_some_and(|placed| core::ptr::eq(placed, area.as_ptr()))
        };
        if let Some(area) = made.filter(|area| !is_placed(*area)) {
            // SAFETY: made above, and found by nothing.
            unsafe { self.free_area(area) };
        }
        result
    }

    /// Returns the number of a device that is or was in use.
    fn number_of(&self, device: &'static dyn SwapDevice) -> Option<u32> {
        let is_same = |(_, area): &(u32, &SwapArea<M>)| core::ptr::addr_eq(area.device, device);
        let found = (0..).zip(self.swap_areas()).find(is_same);
        found.map(|(number, _)| number)
    }

    fn free_number(&self) -> Option<u32> {
        (0..SWAP_DEVICES as u32).find(|&number| self.swap_area(number).is_none())
    }

    /// Makes a device's part of this room.
    fn make_area(
        &'static self,
        device: &'static dyn SwapDevice,
        cpus: &'static [SlotCache],
        count: u64,
    ) -> Result<NonNull<SwapArea<M>>, Errno> {
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
                state: AtomicU32::new(State::Off as u32),
                priority: AtomicU32::new(0),
                frame,
            });
        }
        Ok(area)
    }

    /// Frees a device's part of this room.
    ///
    /// # Safety
    /// `make_area` has made it, and nothing uses it any more.
    unsafe fn free_area(&self, area: NonNull<SwapArea<M>>) {
        // SAFETY: the caller's promise.
        let frame = unsafe {
            let frame = area.as_ref().frame;
            area.drop_in_place();
            frame
        };
        self.give_space_frame(frame);
    }

    /// Lets a device give slots. Under the lock.
    fn turn_on(&self, area: &SwapArea<M>, priority: Option<i32>) {
        let in_use = self
            .swap_areas()
            .filter(|area| area.state() != State::Off)
            .map(SwapArea::priority);
        let last = in_use.min().unwrap_or(-1).min(-1) - 1;
        area.set_priority(priority.unwrap_or(last));
        area.set_state(State::On);
        self.set_order();
    }

    /// Puts the devices that give slots in order. Under the lock.
    fn set_order(&self) {
        let mut order = 0;
        let mut taken = 0u32;
        for at in 0..SWAP_DEVICES as u32 {
            let areas = (0u32..).zip(self.swap_areas());
            let rest = areas.filter(|(number, area)| taken & 1 << number == 0 && area.is_on());
            let first = rest.max_by_key(|(number, area)| (area.priority(), u32::MAX - number));
            let Some((number, _)) = first else {
                break;
            };
            taken |= 1 << number;
            order |= (number + 1) << (4 * at);
        }
        self.swap.order.store(order, Ordering::Release);
    }

    /// Lets a device give no more slots. [`Memory::end_swap_off`] follows.
    ///
    /// # Errors
    /// `EINVAL` for a device that is not in use, or is leaving.
    pub(crate) fn begin_swap_off(&self, number: u32) -> Result<(), Errno> {
        let _change = self.swap.change.lock(self.machine());
        let area = self.swap_area(number).filter(|area| area.is_on());
        let area = area.ok_or(Errno::EINVAL)?;
        area.set_state(State::Leaving);
        self.set_order();
        // As on Linux, the devices without a priority of their own that come later move up.
        let before = area.priority();
        if before < 0 {
            let later = |other: &&SwapArea<M>| other.is_on() && other.priority() < before;
            let move_up = |other: &SwapArea<M>| other.set_priority(other.priority() + 1);
            self.swap_areas().filter(later).for_each(move_up);
        }
        // Pairs with the fence of `allocate_slot`.
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Ends what `begin_swap_off` has begun: the device is off, or gives slots again.
    pub(crate) fn end_swap_off(&self, number: u32, is_off: bool) {
        let _change = self.swap.change.lock(self.machine());
        if let Some(area) = self.swap_area(number) {
            let priority = Some(area.priority()).filter(|&priority| priority >= 0);
            match is_off {
                true => area.set_state(State::Off),
                false => {
                    area.set_state(State::Off);
                    self.turn_on(area, priority);
                }
            }
        }
    }

    /// Whether no slot of a leaving device is in use. None will be.
    pub(crate) fn is_swap_empty(&self, number: u32) -> bool {
        let area = self.swap_area(number);
        area.is_none_or(|area| area.slots.is_empty(&mut || self.machine().poll()))
    }

    /// Frees what the devices' slots take, with the last use of this memory core.
    ///
    /// # Safety
    /// Nothing else uses the core, and no entry names a slot.
    pub unsafe fn end_swap(&self) {
        for place in &self.swap.areas {
            let area = place.swap(core::ptr::null_mut(), Ordering::AcqRel);
            if let Some(area) = NonNull::new(area.cast::<SwapArea<M>>()) {
                // SAFETY: `swap_on` has placed it, and the caller's promise.
                unsafe { self.free_area(area) };
            }
        }
        self.swap.order.store(0, Ordering::Relaxed);
    }

    /// Calls `visit` with each device in use.
    pub fn for_each_swap(&self, visit: &mut dyn FnMut(SwapUsage)) {
        for (number, area) in (0..).zip(self.swap_areas()) {
            if area.state() != State::Off {
                visit(SwapUsage {
                    number,
                    slots: area.slots.slots(),
                    used: area.slots.used(),
                    priority: area.priority(),
                });
            }
        }
    }

    /// Returns the number of slots of all devices, and how many are used. Of a leaving device only the used ones count,
    /// as on Linux.
    pub fn swap_usage(&self) -> (u64, u64) {
        let mut all = (0, 0);
        for area in self.swap_areas() {
            let used = area.slots.used();
            let slots = match area.state() {
                State::Off => continue,
                State::On => area.slots.slots(),
                State::Leaving => used,
            };
            all = (all.0 + slots, all.1 + used);
        }
        all
    }
}
