//! The first part of the boot, until there is memory and all CPUs are known.

use core::sync::atomic::Ordering;

use super::features::{self, Features};
use super::start_info::StartInfo;
use super::{acpi, apic, gdt, idt, io_apic, paging, percpu, serial, smp, time, window};
use crate::memory::boot_frames::BootFrames;
use crate::report::refuse;
use crate::start::{self, Machine};
use crate::{console, swap};

/// Firmware and devices are below; the direct map covers them.
const FIRMWARE_END: u64 = 4 << 30;

/// The entry point from the boot code; still on the boot stack and the boot tables.
pub extern "C" fn kernel_start(start_info: u32) -> ! {
    console::begin();
    percpu::install(0, 0);
    let info = StartInfo::read(start_info).unwrap_or_else(|error| refuse(format_args!("{error}")));
    let features = features::detect();
    if !features.contains(Features::NO_EXECUTE) {
        refuse(format_args!(
            "the CPU has no execute-disable bit, which page tables use"
        ));
    }
    let mut frames = BootFrames::new(&info);
    // SAFETY: This is the only CPU, and it still runs on the boot tables.
    unsafe { features::patch_smap() };
    gdt::prepare(0, &mut frames);
    idt::fill();
    smp::set_up_this_cpu(0, true);
    paging::build(
        &info,
        &mut frames,
        features.contains(Features::GIGABYTE_PAGES),
        0,
        FIRMWARE_END,
    );
    start::claim_heap(&mut frames);
    apic::find(&mut frames);
    apic::enable();
    let own = apic::id();
    percpu::of(0)
        .hardware_id
        .store(own.into(), Ordering::Relaxed);
    time::calibrate();

    let found = acpi::read(info.rsdp).unwrap_or_else(|error| refuse(format_args!("{error}")));
    if let Some(address) = found.io_apic {
        io_apic::map(address, &mut frames);
    }
    serial::find();
    window::find();
    swap::virtio::find(&mut frames);
    for number in 1..found.apic_ids.len() {
        gdt::prepare(number as u32, &mut frames);
    }
    let others = found.apic_ids.iter().filter(|&&id| id != own);
    start::begin(Machine {
        frames,
        others: others.map(|&id| id.into()).collect(),
        initramfs: info.module,
        timer: found.hpet,
    })
}
