//! Which CPUs there are: the local APIC entries of the ACPI tables.

use core::ptr::NonNull;

use super::percpu::MAX_CPUS;
use acpi::madt::{Madt, MadtEntry};
use acpi::{AcpiHandler, AcpiTables, PhysicalMapping};
use arrayvec::ArrayVec;

use super::paging::physical_to_virtual;

/// All of memory is mapped already.
#[derive(Clone)]
struct DirectMap;

impl AcpiHandler for DirectMap {
    unsafe fn map_physical_region<T>(
        &self,
        physical: usize,
        size: usize,
    ) -> PhysicalMapping<Self, T> {
        let pointer = physical_to_virtual(physical as u64).cast::<T>();
        // SAFETY: The direct map covers everything below 4 GiB, where firmware keeps its tables.
        unsafe {
            PhysicalMapping::new(
                physical,
                NonNull::new_unchecked(pointer),
                size,
                size,
                self.clone(),
            )
        }
    }

    fn unmap_physical_region<T>(_: &PhysicalMapping<Self, T>) {}
}

/// The local APIC ids of all CPUs that may run.
///
/// # Errors
/// A line that says what is missing.
pub fn apic_ids(rsdp: u64) -> Result<ArrayVec<u32, MAX_CPUS>, &'static str> {
    if rsdp == 0 {
        return Err("the loader names no ACPI tables");
    }
    // SAFETY: The loader vouches for the address.
    let tables = unsafe { AcpiTables::from_rsdp(DirectMap, rsdp as usize) }
        .map_err(|_| "the ACPI tables are damaged")?;
    let madt = tables
        .find_table::<Madt>()
        .map_err(|_| "the ACPI tables list no CPUs")?;
    let mut ids = ArrayVec::new();
    for entry in madt.get().entries() {
        let (id, flags) = match entry {
            MadtEntry::LocalApic(entry) => (u32::from(entry.apic_id), entry.flags),
            MadtEntry::LocalX2Apic(entry) => (entry.x2apic_id, entry.flags),
            _ => continue,
        };
        if flags & 1 == 0 || ids.contains(&id) {
            continue;
        }
        ids.try_push(id)
            .map_err(|_| "more CPUs than the kernel supports (64)")?;
    }
    Ok(ids)
}
