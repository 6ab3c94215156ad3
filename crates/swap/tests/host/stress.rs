//! CPUs that use different slots of a device at once.

use std::thread;

use faultless_swap::{DeviceError, SwapDevice};

use crate::machine::{device, set_cpu};
use crate::pages::{Random, any};

const CPUS: u64 = 4;
const SLOTS: u64 = 64;

#[test]
fn cpus_use_their_slots_at_once() {
    // Less memory than all pages need, so that writes also fail.
    let (machine, device) = device(180, CPUS as usize, CPUS * SLOTS);
    let failed = thread::scope(|scope| {
        let cpus: Vec<_> = (0..CPUS)
            .map(|cpu| {
                let device = &device;
                scope.spawn(move || {
                    set_cpu(cpu as u32);
                    run(cpu, device)
                })
            })
            .collect();
        cpus.into_iter().map(|cpu| cpu.join().unwrap()).sum::<u64>()
    });
    assert!(failed > 0);
    assert_eq!(machine.audit(&[&device]).lost(), 0);
    for slot in 0..device.slots() {
        device.discard(slot);
    }
    assert_eq!(device.usage(), Default::default());
    drop(device);
    assert_eq!(machine.available(), 179);
}

/// Writes, reads and discards this CPU's slots, which are neighbours of other CPUs' slots. Returns how many
/// writes failed.
fn run(cpu: u64, device: &dyn SwapDevice) -> u64 {
    let mut random = Random(cpu);
    let mut held = [None; SLOTS as usize];
    let mut failed = 0;
    for _ in 0..10_000 {
        let at = random.below(SLOTS);
        let slot = at * CPUS + cpu;
        let held = &mut held[at as usize];
        match random.below(3) {
            0 => {
                let seed = random.next();
                let written = device.write(slot, &any(seed));
                *held = written.is_ok().then_some(seed);
                failed += u64::from(written.is_err());
            }
            1 => {
                device.discard(slot);
                *held = None;
            }
            _ => {
                let mut page = [0; 4096];
                let read = device.read(slot, &mut page);
                match held {
                    Some(seed) => assert!(read.is_ok() && page == any(*seed)),
                    None => assert_eq!(read, Err(DeviceError::Failed)),
                }
            }
        }
    }
    failed
}
