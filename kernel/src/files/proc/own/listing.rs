//! `/proc/PID/{maps,smaps}`, opened: a record for each mapping, of which there may be very many.
//!
//! The text is generated as it is read, and never kept. A description remembers where its last read ended:
//! the position, the address, and the rest of the record there. As on Linux, a read at any other position
//! begins with the first mapping and skips what is before the position. Each record is whole, and describes
//! its mapping at the time when the record was generated.
//!
//! An open file refers to the address space that the process had when it was opened, as for `/proc/PID/mem`.
//!
//! Only `pread` allows two concurrent reads of one description. One of them then finds no remembered place,
//! and begins anew.

use alloc::vec::Vec;
use core::mem;
use core::ops::Range;

use super::super::processes;
use super::{Own, Text, maps, smaps};
use crate::arch::uaccess;
use crate::errno::{Answer, EINTR, Errno};
use crate::memory::MapsEntry;
use crate::process::UserSpace;
use crate::sched;
use crate::sched::thread::Work;
use crate::shared::Shared;
use crate::sync::SpinLock;

/// Generates the record of a mapping.
type Record = fn(&UserSpace, &mut Text, &MapsEntry) -> Result<(), Errno>;

/// One of these files, opened.
pub struct Listing {
    process: u32,
    /// The memory core's number of the address space; none if the process had ended.
    space: Option<u64>,
    record: Record,
    last: SpinLock<Place>,
}

/// Where a read ended.
#[derive(Default)]
struct Place {
    position: u64,
    /// The last record, and how much of it is before the position.
    record: Vec<u8>,
    used: usize,
    /// Where to look for the next mapping.
    address: u64,
}

impl Place {
    fn rest(&self) -> &[u8] {
        self.record.get(self.used..).unwrap_or_default()
    }

    fn advance(&mut self, bytes: u64) {
        self.used += bytes as usize;
        self.position += bytes;
    }

    /// Generates the next record. Returns whether there is one.
    fn next(&mut self, record: Record, space: &UserSpace) -> Result<bool, Errno> {
        let Some(entry) = maps::next(space, self.address) else {
            *self = Self {
                record: Vec::new(),
                used: 0,
                ..*self
            };
            return Ok(false);
        };
        let mut text = Text::on(mem::take(&mut self.record));
        record(space, &mut text, &entry)?;
        self.record = text.into_bytes();
        self.used = 0;
        self.address = entry.end;
        Ok(true)
    }
}

impl Listing {
    /// Opens an entry of a process's directory, if it is one of these files.
    pub fn open(process: u32, own: Own) -> Option<Self> {
        let record: Record = match own {
            Own::Maps => maps::line,
            Own::Sizes => smaps::record,
            _ => return None,
        };
        let space = processes::find(process).ok().and_then(|p| p.space());
        Some(Self {
            process,
            space: space.map(|space| space.id().id),
            record,
            last: SpinLock::new(Place::default()),
        })
    }

    /// Reads from a position to the end, or until the buffer is full. As on Linux, the rest of a record is
    /// read even if the process has ended.
    ///
    /// # Errors
    /// `EFAULT`, `ENOMEM`, `ESRCH` if the process is gone, `EINTR`.
    pub fn read(&self, position: u64, to: u64, length: u64) -> Answer {
        let mut place = mem::take(&mut *self.last.lock());
        if place.position != position {
            place = Place::default();
        }
        let (mut space, mut done) = (None, 0);
        while done < length {
            match self.step(&mut place, &mut space, position, to, done..length) {
                Ok(Some(part)) => done += part,
                Ok(None) => break,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        let old = mem::replace(&mut *self.last.lock(), place);
        drop(old);
        Ok(done)
    }

    /// Generates a record, or copies from one. Returns how much was copied; `None` at the end.
    fn step(
        &self,
        place: &mut Place,
        space: &mut Option<Shared<UserSpace>>,
        position: u64,
        to: u64,
        range: Range<u64>,
    ) -> Result<Option<u64>, Errno> {
        let rest = place.rest();
        if rest.is_empty() {
            if space.is_none() {
                *space = self.space()?;
            }
            // A record may take time in proportion to its pages.
            if !sched::breathe() && sched::current().work().contains(Work::EXIT) {
                return Err(EINTR);
            }
            let made = match space {
                Some(space) => place.next(self.record, space)?,
                None => false,
            };
            return Ok(made.then_some(0));
        }
        let passed = position
            .saturating_sub(place.position)
            .min(rest.len() as u64);
        if passed != 0 {
            place.advance(passed);
            return Ok(Some(0));
        }
        let part = (rest.len() as u64).min(range.end - range.start);
        uaccess::write_bytes(to.wrapping_add(range.start), &rest[..part as usize])?;
        place.advance(part);
        Ok(Some(part))
    }

    /// The address space, if the process still has it.
    fn space(&self) -> Result<Option<Shared<UserSpace>>, Errno> {
        let space = match processes::find(self.process) {
            Ok(process) => process.space(),
            // Ended, and not reaped yet.
            Err(_) if processes::exists(self.process) => None,
            Err(error) => return Err(error),
        };
        Ok(space.filter(|space| Some(space.id().id) == self.space))
    }
}
