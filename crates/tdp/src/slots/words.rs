//! Arrays of words that belong to a slot: the bits of its dirty log, its reverse map.
//!
//! The words lie in frames. The slot's own frame leads to them, through up to two levels of further frames if the slot is
//! large.
//!
//! *Writes*: nothing after the array is made; its users write the words.

use faultless_mm::{Memory, NoMemory};
use faultless_paging::{ENTRIES, Entry, Frame, Table};
use faultless_sync::atomic::{AtomicU64, Ordering};

use crate::guest::GuestMachine;

/// Frames that the slot's own frame leads to.
const TOP: usize = if cfg!(any(loom, shuttle)) { 2 } else { 224 };
/// The largest number of levels below it.
const MOST_LEVELS: u32 = 3;

/// An array of words.
pub(crate) struct Words {
    /// Frames of words, or of frames; 0: none.
    top: [AtomicU64; TOP],
    /// Levels of frames below `top`; 0: there are no words.
    levels: AtomicU64,
}

/// Words below one entry of a frame at a level, where 1 has the words.
const fn span(level: u32) -> u64 {
    (ENTRIES as u64).pow(level - 1)
}

impl Words {
    /// Returns an array without words.
    pub(crate) fn new() -> Self {
        Self {
            top: [const { 0 }; TOP].map(AtomicU64::new),
            levels: AtomicU64::new(0),
        }
    }

    /// Makes `count` words with this value. Only the caller uses the array.
    ///
    /// # Errors
    /// [`NoMemory`]; [`Words::retire`] frees what was allocated.
    pub(crate) fn fill<M: GuestMachine>(
        &self,
        memory: &'static Memory<M>,
        count: u64,
        value: u64,
    ) -> Result<(), NoMemory> {
        let reach = |level: &u32| TOP as u64 * span(level + 1);
        let levels = (1..=MOST_LEVELS).find(|level| count <= reach(level));
        let levels = levels.ok_or(NoMemory)?;
        self.levels.store(u64::from(levels), Ordering::Relaxed);
        let below = span(levels + 1);
        for (number, place) in self.top.iter().enumerate() {
            let first = number as u64 * below;
            if first >= count {
                break;
            }
            let frame = memory.allocate_table()?;
            place.store(frame.0, Ordering::Relaxed);
            fill_frame(memory, frame, levels, (count - first).min(below), value)?;
        }
        Ok(())
    }

    /// Takes the words of another array, which is not retired. Only the caller uses this array.
    pub(crate) fn adopt(&self, other: &Self) {
        for (own, other) in self.top.iter().zip(&other.top) {
            own.store(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let levels = other.levels.load(Ordering::Relaxed);
        self.levels.store(levels, Ordering::Relaxed);
    }

    /// Retires the words, as far as they were allocated.
    pub(crate) fn retire<M: GuestMachine>(&self, memory: &'static Memory<M>) {
        let levels = self.levels.load(Ordering::Relaxed) as u32;
        for place in &self.top {
            let frame = place.load(Ordering::Relaxed);
            if frame != 0 {
                retire_frame(memory, Frame(frame), levels);
            }
        }
    }

    /// Calls `visit` with every frame, of words and of frames.
    pub(crate) fn for_each_frame<M: GuestMachine>(
        &self,
        machine: &M,
        visit: &mut dyn FnMut(Frame),
    ) {
        let levels = self.levels.load(Ordering::Relaxed) as u32;
        let used = self.top.iter().map(|place| place.load(Ordering::Relaxed));
        used.filter(|&frame| frame != 0)
            .for_each(|frame| visit_frame(machine, Frame(frame), levels, visit));
    }

    /// Returns a word. `None` if there are none, or not so many.
    #[inline]
    pub(crate) fn get<M: GuestMachine>(&self, machine: &M, number: u64) -> Option<&Entry> {
        let mut level = self.levels.load(Ordering::Relaxed) as u32;
        if level == 0 {
            return None;
        }
        let place = self.top.get((number / span(level + 1)) as usize)?;
        let mut frame = place.load(Ordering::Relaxed);
        loop {
            if frame == 0 {
                return None;
            }
            // SAFETY: allocated as a table, and retired with the slot.
            let table = unsafe { Table::at(machine, Frame(frame)) };
            let entry = &table.entries()[(number / span(level)) as usize % ENTRIES];
            level -= 1;
            if level == 0 {
                return Some(entry);
            }
            frame = entry.load();
        }
    }
}

fn fill_frame<M: GuestMachine>(
    memory: &'static Memory<M>,
    frame: Frame,
    level: u32,
    count: u64,
    value: u64,
) -> Result<(), NoMemory> {
    // SAFETY: a new table.
    let table = unsafe { Table::at(memory.machine(), frame) };
    for (number, entry) in table.entries().iter().enumerate() {
        let first = number as u64 * span(level);
        if first >= count {
            break;
        }
        if level == 1 {
            entry.set(value);
            continue;
        }
        let below = memory.allocate_table()?;
        entry.set(below.0);
        fill_frame(
            memory,
            below,
            level - 1,
            (count - first).min(span(level)),
            value,
        )?;
    }
    Ok(())
}

fn visit_frame<M: GuestMachine>(
    machine: &M,
    frame: Frame,
    level: u32,
    visit: &mut dyn FnMut(Frame),
) {
    visit(frame);
    if level > 1 {
        // SAFETY: allocated as a table, and retired with the slot.
        let table = unsafe { Table::at(machine, frame) };
        let used = table.entries().iter().map(Entry::load);
        used.filter(|&frame| frame != 0)
            .for_each(|frame| visit_frame(machine, Frame(frame), level - 1, visit));
    }
}

fn retire_frame<M: GuestMachine>(memory: &'static Memory<M>, frame: Frame, level: u32) {
    if level > 1 {
        // SAFETY: allocated as a table, and retired below.
        let table = unsafe { Table::at(memory.machine(), frame) };
        let used = table.entries().iter().map(Entry::load);
        used.filter(|&frame| frame != 0)
            .for_each(|frame| retire_frame(memory, Frame(frame), level - 1));
    }
    memory.retire_table(frame);
}
