//! The first part of the boot, until there is memory and all CPUs are known.

use super::features::{self, Features};
use super::start_info::StartInfo;
use super::{asid, debugcon, gic, paging, pci, percpu, power, serial, smp, time, tlb, window};
use crate::memory::boot_frames::BootFrames;
use crate::report::refuse;
use crate::start::{self, Machine};
use crate::{console, swap};

/// The entry point from the boot code; still on the boot stack and the boot tables. `tree`, `image`: physical
/// addresses of the device tree and of the kernel.
pub extern "C" fn kernel_start(tree: u64, image: u64) -> ! {
    paging::set_image_base(image);
    percpu::install(0, smp::own_id());
    let info = StartInfo::read(tree).unwrap_or_else(|error| refuse(format_args!("{error}")));
    power::set_conduit(info.devices.by_smc);
    pci::find(&info.devices);
    debugcon::find(&info.devices);
    console::begin();
    let choices = info
        .choices
        .unwrap_or_else(|error| refuse(format_args!("{error}")));
    if !features::detect(choices).contains(Features::ATOMICS | Features::PAN) {
        refuse(format_args!(
            "the CPU is older than Armv8.1: it has no atomic instructions, or no PAN"
        ));
    }
    let mut frames = BootFrames::new(&info);
    features::enable();
    tlb::choose(!choices.interrupts_flush);
    asid::choose(choices.asids);
    paging::set_empty_root(frames.allocate_zeroed(1));
    paging::build(&info, &mut frames, true, info.memory_begins(), 0);
    pci::map(&mut frames);
    start::claim_heap(&mut frames);
    time::calibrate(info.devices.read_clock());
    gic::find(&info.devices, info.cpus.len())
        .unwrap_or_else(|error| refuse(format_args!("{error}")));
    gic::enable(0);
    serial::find(&info.devices);
    power::find_key(&info.devices);
    window::find();
    swap::virtio::find(&mut frames);
    let own = smp::own_id();
    start::begin(Machine {
        frames,
        others: info.cpus.iter().copied().filter(|&id| id != own).collect(),
        initramfs: info.module,
        timer: None,
    })
}
