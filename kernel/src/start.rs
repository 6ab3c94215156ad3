//! The boot sequence.

use core::sync::atomic::Ordering;

use crate::arch::features::{self, Features};
use crate::arch::start_info::StartInfo;
use crate::arch::{
    acpi, apic, context, gdt, idt, io_apic, paging, percpu, serial, smp, time, window,
};
use crate::exec::run_file::RunFile;
use crate::memory::boot_frames::{BootFrames, TOO_LITTLE};
use crate::memory::stacks;
use crate::report::refuse;
use crate::{console, exec, files, heap, memory, sched, swap, trace, verify};

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
    );
    let heap_size = (frames.free_bytes() / 32).clamp(1 << 20, 4 << 20) & !4095;
    let heap_start = frames.allocate(heap_size / 4096);
    // SAFETY: Just allocated for this.
    unsafe { heap::claim(paging::physical_to_virtual(heap_start), heap_size as usize) };
    apic::find(&mut frames);
    apic::enable();
    percpu::of(0).apic_id.store(apic::id(), Ordering::Relaxed);
    time::calibrate();

    let found = acpi::read(info.rsdp).unwrap_or_else(|error| refuse(format_args!("{error}")));
    let apic_ids = found.apic_ids;
    if let Some(address) = found.io_apic {
        io_apic::map(address, &mut frames);
    }
    serial::find();
    window::find();
    swap::virtio::find(&mut frames);
    for number in 1..apic_ids.len() {
        gdt::prepare(number as u32, &mut frames);
    }
    memory::machine::set_up(&info, frames, apic_ids.len());
    if let Some(address) = found.hpet {
        files::hpet::begin(address);
    }

    if let Some((start, size)) = info.module {
        // SAFETY: The module's memory was never allocated, and is not written.
        files::initramfs::set(unsafe { paging::physical_slice(start, size as usize) });
    }
    sched::idle::prepare(0);
    start_others(&apic_ids);
    // The rest runs on a stack with a guard page, as every thread does.
    let idle = sched::idle::of(0);
    // SAFETY: The idle thread's stack is new, and the boot stack is not needed any more.
    unsafe { context::leave_for(stacks::top(idle), run) }
}

fn start_others(apic_ids: &[u32]) {
    let own = apic::id();
    let others = apic_ids.iter().filter(|&&id| id != own);
    for (number, &apic_id) in (1..).zip(others) {
        sched::idle::prepare(number);
        percpu::set_count(number + 1);
        if !smp::start(number, apic_id, stacks::top(sched::idle::of(number))) {
            percpu::set_count(number);
            refuse(format_args!("CPU {number} did not start"));
        }
    }
}

extern "C" fn run() -> ! {
    let run = match RunFile::read() {
        Ok(run) => run,
        Err(error) => refuse(format_args!("{error}")),
    };
    if let Some(cpus) = run.cpus
        && cpus != percpu::count()
    {
        refuse(format_args!(
            "{} CPUs run, {cpus} were asked for",
            percpu::count()
        ));
    }
    // Its node is made with the others.
    memory::khugepaged::set_mode(run.huge)
        .unwrap_or_else(|_| refuse(format_args!("there is too little memory for huge pages")));
    swap::begin(run.swap).unwrap_or_else(|error| refuse(format_args!("{error}")));
    if files::begin().is_err() {
        refuse(format_args!("{TOO_LITTLE}"));
    }
    trace::begin(&run.record).unwrap_or_else(|error| refuse(format_args!("{error}")));
    heap::failing::begin(run.heap_fail);
    verify::begin(run.verify).unwrap_or_else(|error| refuse(format_args!("{error}")));
    exec::first::begin(run);
    sched::idle::begin()
}
