//! A minimal virtual machine monitor: it loads an image, runs a vCPU, and moves the guest while that runs.
//!
//! `memory.rs` gives the guest's memory the traits of rust-vmm's `vm-memory`; this file is a program that uses them.
//!
//! Run it with `cargo run -p faultless-example-vmm`.

mod memory;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use faultless_soft::{Exit, Options, Soft, SoftCpu, SoftSpace, SoftVcpu};
use faultless_tdp::{Slot, SlotFlags};
use memory::{Done, PAGE, Region, Vm};
use vm_memory::bitmap::Bitmap;
use vm_memory::{Bytes, GuestMemoryRegion, MemoryRegionAddress as At};

const MEMORY: u64 = 0x4000_0000;
const PAGES: u64 = 1024;
/// A device of the guest: a store ends the program.
const POWER: u64 = 0x1000;
/// With at most so many dirty pages left, the guest is stopped.
const FEW: usize = 3;

fn main() -> Done<()> {
    let memory = Soft::start(Options::default())?;
    let host = SoftCpu::attend(memory, 0, || Soft::space(memory, Default::default()));
    let host = Arc::new(host?);
    SoftCpu::run(&host, 0, |cpu| -> Done<()> {
        let source = Vm::new(&host, MEMORY, PAGES * PAGE)?;
        let target = Vm::new(&host, MEMORY, PAGES * PAGE)?;
        migrate(&host, [&source, &target].map(|vm| Region { vm, cpu }))?;
        source.guest.verify().and(target.guest.verify())?;
        source.guest.destroy();
        target.guest.destroy();
        Ok(())
    })?;
    let host = Arc::into_inner(host).ok_or("a guest still uses the host")?;
    SoftCpu::attend(memory, 0, || host.destroy());
    Ok(())
}

/// Moves a running guest to another one.
fn migrate(host: &SoftSpace, [from, to]: [Region<'_>; 2]) -> Done<()> {
    let mut image = vec![0x90; 40 * PAGE as usize];
    image[..5].copy_from_slice(b"guest");
    from.read_exact_volatile_from(At(0), &mut &image[..], image.len())?;
    println!("loaded {} pages", image.len() as u64 / PAGE);

    let (vm, stop) = (from.vm, AtomicBool::new(false));
    let exit = std::thread::scope(|scope| -> Done<Option<Exit>> {
        let vcpu = scope.spawn(|| run(host, vm, &stop));
        let flags = SlotFlags::LOG_DIRTY_PAGES;
        vm.guest.set_slot(0, &Slot { flags, ..vm.slot })?;
        let mut dirty = Vec::from_iter((0..PAGES).map(|page| At(page * PAGE)));
        for round in 1..=10u64 {
            copy(&from, &to, &dirty)?;
            println!("round {round}: copied {} pages", dirty.len());
            dirty = vm.take_dirty()?;
            // A device model of this program writes, too.
            from.write_obj(round, At(1000 * PAGE))?;
            assert!(from.bitmap().dirty_at(1000 * PAGE as usize));
            if dirty.len() <= FEW {
                break;
            }
        }
        copy(&from, &to, &dirty)?;
        stop.store(true, Ordering::Relaxed);
        vcpu.join().map_err(|_| "the vCPU died".into())
    })?;
    println!("stopped by {exit:?}");
    let dirty = vm.take_dirty()?;
    copy(&from, &to, &dirty)?;
    println!("at rest: copied {} pages", dirty.len());

    let content = |region: &Region<'_>| {
        let mut bytes = vec![0; region.len() as usize];
        region.read_slice(&mut bytes, At(0)).map(|()| bytes)
    };
    assert!(content(&from)? == content(&to)?, "the guests differ");
    println!("both guests have the same {PAGES} pages");
    Ok(())
}

/// The vCPU, on a CPU of its own: writes to one page after the other. Returns why it stopped.
fn run(host: &SoftSpace, vm: &Vm, stop: &AtomicBool) -> Option<Exit> {
    SoftCpu::run(host, 1, |cpu| {
        let vcpu = SoftVcpu::new(cpu, &vm.guest);
        (0..).find_map(|n| {
            let at = MEMORY + (50 + n / 4096 % 500) * PAGE + n % 512 * 8;
            let stops = stop.load(Ordering::Relaxed);
            vcpu.store(if stops { POWER } else { at }, n).err()
        })
    })
}

fn copy(from: &Region<'_>, to: &Region<'_>, pages: &[At]) -> Done<()> {
    let mut page = [0; PAGE as usize];
    for &at in pages {
        from.read_slice(&mut page, at)?;
        to.write_slice(&page, at)?;
    }
    Ok(())
}
