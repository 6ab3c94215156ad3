//! Reads the ACPI tables: the CPUs, the I/O APIC, and the high precision event timer.

use core::ptr::NonNull;

use super::percpu::MAX_CPUS;
use acpi::madt::{Madt, MadtEntry};
use acpi::{AcpiHandler, AcpiTables, HpetInfo, PhysicalMapping};
use arrayvec::ArrayVec;

use super::paging::physical_to_virtual;

/// Maps tables for the parser: the direct map has all of memory already.
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

/// The contents of the tables.
pub struct Found {
    /// The local APIC ids of all CPUs that may run.
    pub apic_ids: ArrayVec<u32, MAX_CPUS>,
    /// The physical address of the first I/O APIC, if there is one.
    pub io_apic: Option<u64>,
    /// The physical address of the high precision event timer's registers, if there is one.
    pub hpet: Option<u64>,
}

/// Reads the tables.
///
/// # Errors
/// A line that says what is missing.
pub fn read(rsdp: u64) -> Result<Found, &'static str> {
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
    let mut io_apic = None;
    for entry in madt.get().entries() {
        let (id, flags) = match entry {
            MadtEntry::LocalApic(entry) => (u32::from(entry.apic_id), entry.flags),
            MadtEntry::LocalX2Apic(entry) => (entry.x2apic_id, entry.flags),
            MadtEntry::IoApic(entry) => {
                // The I/O APIC with the lines of the ISA bus.
                if entry.global_system_interrupt_base == 0 {
                    io_apic = Some(u64::from(entry.io_apic_address));
                }
                continue;
            }
            _ => continue,
        };
        if flags & 1 == 0 || ids.contains(&id) {
            continue;
        }
        ids.try_push(id)
            .map_err(|_| "more CPUs than the kernel supports (64)")?;
    }
    let hpet = HpetInfo::new(&tables).ok();
    Ok(Found {
        apic_ids: ids,
        io_apic,
        hpet: hpet.map(|hpet| hpet.base_address as u64),
    })
}
