//! `/proc/PID/{smaps,smaps_rollup}`: the memory use of each mapping, and the sum of all.
//!
//! Nothing is counted in advance: entries and frames are looked at when the file is read.

use core::fmt::Write;

use arrayvec::ArrayString;

use super::Text;
use super::maps;
use crate::arch::protection_keys;
use crate::errno::{ENOMEM, ESRCH, Errno};
use crate::files::source::{self, Kind};
use crate::memory::{Attributes, Huge, Locked, MapsEntry, Reading, Usage, userfault};
use crate::process::{Process, UserSpace};

/// Memory use of mappings, by type.
#[derive(Default)]
struct Sum {
    usage: Usage,
    /// The share of files (PSS), in bytes.
    file: u64,
    /// The share of memory without a file in the tree: shared, or with a descriptor.
    memory: u64,
    /// The share of locked mappings.
    locked: u64,
}

impl Sum {
    /// Adds a mapping.
    fn add(&mut self, space: &UserSpace, line: &MapsEntry) {
        let usage = space.usage(line.start..line.end);
        let of_store = usage.share.bytes() - usage.share_anonymous.bytes();
        if is_memory(space, line) {
            self.memory += of_store;
        } else {
            self.file += of_store;
        }
        let attributes = space.lookup(line.start);
        if attributes.is_some_and(|of| of.flags.locked != Locked::No) {
            self.locked += usage.share.bytes();
        }
        self.usage += usage;
    }

    fn write(&self, text: &mut Text, is_rollup: bool) -> Result<(), Errno> {
        let usage = &self.usage;
        kilobytes(text, "Rss", usage.resident)?;
        kilobytes(text, "Pss", usage.share.bytes())?;
        kilobytes(text, "Pss_Dirty", usage.share_dirty.bytes())?;
        if is_rollup {
            kilobytes(text, "Pss_Anon", usage.share_anonymous.bytes())?;
            kilobytes(text, "Pss_File", self.file)?;
            kilobytes(text, "Pss_Shmem", self.memory)?;
        }
        for (name, bytes) in [
            ("Shared_Clean", usage.shared_clean),
            ("Shared_Dirty", usage.shared_dirty),
            ("Private_Clean", usage.private_clean),
            ("Private_Dirty", usage.private_dirty),
            ("Referenced", usage.referenced),
            ("Anonymous", usage.anonymous),
            ("KSM", 0),
            ("LazyFree", usage.lazily_free),
            ("AnonHugePages", usage.huge),
            ("ShmemPmdMapped", usage.object_huge),
            ("FilePmdMapped", 0),
            ("Shared_Hugetlb", usage.shared_pooled),
            ("Private_Hugetlb", usage.private_pooled),
            ("Swap", usage.swapped),
            ("SwapPss", usage.share_swapped.bytes()),
            ("Locked", self.locked),
        ] {
            kilobytes(text, name, bytes)?;
        }
        Ok(())
    }
}

/// Bytes of a huge page.
const HUGE: u64 = 2 << 20;

/// Writes a line in the columns of Linux.
fn kilobytes(text: &mut Text, name: &str, bytes: u64) -> Result<(), Errno> {
    let width = 15 - name.len();
    text.line(format_args!("{name}:{:width$}{:8} kB", "", bytes / 1024))
}

/// Whether a mapping shows shared memory that is no file of the tree.
fn is_memory(space: &UserSpace, line: &MapsEntry) -> bool {
    let Some((store, _)) = space.object_at(line.start) else {
        return false;
    };
    match store.tag() {
        0 => true,
        // SAFETY: The object is held as long as the source is used, and the tag is its own.
        tag => unsafe { source::of(tag) }.kind() == Kind::Memory,
    }
}

/// Writes the record of a mapping.
pub fn record(space: &UserSpace, text: &mut Text, line: &MapsEntry) -> Result<(), Errno> {
    maps::line(space, text, line)?;
    let mut sum = Sum::default();
    sum.add(space, line);
    kilobytes(text, "Size", line.end - line.start)?;
    let attributes = space.lookup(line.start);
    let is_pooled = attributes.is_some_and(|of| of.flags.huge == Huge::Pooled);
    let page = if is_pooled { HUGE } else { 4096 };
    kilobytes(text, "KernelPageSize", page)?;
    kilobytes(text, "MMUPageSize", page)?;
    sum.write(text, false)?;
    let has_span = line.start.next_multiple_of(HUGE) + HUGE <= line.end;
    let is_eligible = has_span && attributes.is_some_and(|of| space.wants_huge_pages(&of));
    text.line(format_args!("THPeligible:    {:8}", u32::from(is_eligible)))?;
    if protection_keys::are_used() {
        let key = match line.protection.is_execute_only() {
            true => protection_keys::EXECUTE_ONLY,
            false => 0,
        };
        text.line(format_args!("ProtectionKey:  {key:8}"))?;
    }
    let Some(attributes) = attributes else {
        // Unmapped meanwhile.
        return text.line(format_args!("VmFlags: "));
    };
    flags(text, &attributes, space.is_newly_mapped(line.start))
}

/// Writes the sum of all mappings.
pub fn rollup(process: &Process, text: &mut Text) -> Result<(), Errno> {
    let mut sum = Sum::default();
    let (mut start, mut end) = (None, 0);
    maps::for_each(process, |space, line| {
        start.get_or_insert(line.start);
        end = line.end;
        sum.add(space, line);
        Ok(())
    })?;
    let start = start.ok_or(ESRCH)?;
    let mut range = ArrayString::<128>::new();
    write!(range, "{start:08x}-{end:08x} ---p 00000000 00:00 0 ").map_err(|_| ENOMEM)?;
    text.line(format_args!("{range:73}[rollup]"))?;
    sum.write(text, true)
}

/// Writes the flags of a mapping, by Linux's abbreviations and in their order.
fn flags(text: &mut Text, of: &Attributes, is_new: bool) -> Result<(), Errno> {
    let (allows, flags) = (of.protection, of.flags);
    let never_written = flags.shared && flags.never_written;
    let is_pooled = flags.huge == Huge::Pooled;
    let accounted = allows.write && !flags.shared && !flags.no_reserve;
    text.add(format_args!("VmFlags: "))?;
    for (is_set, name) in [
        (allows.read, "rd"),
        (allows.write, "wr"),
        (allows.execute, "ex"),
        (flags.shared && !never_written, "sh"),
        (true, "mr"),
        (!never_written, "mw"),
        (true, "me"),
        (flags.shared, "ms"),
        (flags.grows_down, "gd"),
        (of.handler.has(userfault::MISSING), "um"),
        (flags.device, "pf"),
        (of.handler.has(userfault::WRITE_PROTECT), "uw"),
        (flags.locked != Locked::No, "lo"),
        (flags.device, "io"),
        (flags.reading == Reading::Sequential, "sr"),
        (flags.reading == Reading::Random, "rr"),
        (flags.dont_fork, "dc"),
        (flags.device || is_pooled, "de"),
        (flags.locked == Locked::OnFault, "lf"),
        (accounted, "ac"),
        (flags.no_reserve && !is_pooled, "nr"),
        (is_pooled, "ht"),
        (flags.sync, "sf"),
        (flags.wipe_on_fork, "wf"),
        (flags.dont_dump, "dd"),
        (is_new, "sd"),
        (flags.huge == Huge::Wanted, "hg"),
        (flags.huge == Huge::Unwanted, "nh"),
        (flags.mergeable, "mg"),
        (of.handler.has(userfault::MINOR), "ui"),
        (flags.droppable, "dp"),
        (flags.sealed, "sl"),
    ] {
        if is_set {
            text.add(format_args!("{name} "))?;
        }
    }
    text.bytes(b"\n")
}
