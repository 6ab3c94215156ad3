//! `/proc/PID/maps`: the mappings in order, with equal neighbours shown as one.

use faultless_paging::{PAGE_SIZE, Protection};

use crate::base::machine::Machine;
use crate::space::AddressSpace;
use crate::tree::mapping::Attributes;

/// One line of `/proc/PID/maps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapsEntry {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// The accesses that the mapping allows.
    pub protection: Protection,
    /// Whether it grows down.
    pub grows_down: bool,
    /// Whether stores to it reach the memory object, and so all other mappings of that.
    pub shared: bool,
    /// Whether it maps a device ([`crate::Device`]).
    pub device: bool,
    /// The part of a memory object that it maps.
    pub file: Option<MappedFile>,
}

/// The part of a memory object that a mapping shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// The byte of the object at which the mapping begins.
    pub offset: u64,
    /// The port's name for the object.
    pub tag: u64,
    /// The port's name for the open file.
    pub file: u64,
}

impl<M: Machine> AddressSpace<M> {
    /// Returns the first line that ends behind `address`. No writer waits for this, so consecutive lines may be
    /// from different moments, as on Linux.
    pub fn maps_after(&self, address: u64) -> Option<MapsEntry> {
        let _section = self.memory().enter();
        let mut line: Option<(MapsEntry, Attributes)> = None;
        let mut at = address.div_ceil(PAGE_SIZE);
        while let Some(run) = self.tree().next(at) {
            // SAFETY: read in this section.
            let attributes = unsafe { run.word.mapping() }.map(|m| *m.attributes());
            let (start, end) = (run.pages.start * PAGE_SIZE, run.pages.end * PAGE_SIZE);
            match (&mut line, attributes) {
                (None, None) => {}
                (None, Some(attributes)) => {
                    let line_of = MapsEntry {
                        start,
                        end,
                        protection: attributes.protection,
                        grows_down: attributes.flags.grows_down,
                        shared: attributes.flags.shared,
                        device: attributes.flags.device,
                        file: attributes.backed.map(|backed| MappedFile {
                            offset: backed.index(run.pages.start).wrapping_mul(PAGE_SIZE),
                            tag: backed.object().tag(),
                            file: backed.file,
                        }),
                    };
                    line = Some((line_of, attributes));
                }
                (Some((line, like)), Some(attributes))
                    if line.end == start && *like == attributes =>
                {
                    line.end = end;
                }
                _ => break,
            }
            at = run.pages.end;
        }
        line.map(|(line, _)| line)
    }

    /// Calls `show` with every line.
    pub fn maps(&self, show: &mut dyn FnMut(MapsEntry)) {
        let mut at = 0;
        while let Some(line) = self.maps_after(at) {
            at = line.end;
            show(line);
        }
    }
}
