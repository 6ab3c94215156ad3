//! Every allocation fails in turn.

use faultless_frames::NoMemory;
use faultless_swap::{Compressed, DeviceError, Scratch, SwapDevice};

use crate::machine::{Machine, device, leak};
use crate::pages::mixed;

#[test]
fn a_device_that_cannot_be_made_leaves_nothing() {
    let machine = Machine::new(64, 1);
    let before = machine.available();
    let cpus = leak::<Scratch>(1);
    let mut allocations = 0;
    loop {
        machine.fail_after(allocations);
        match Compressed::new(machine, cpus, 2500) {
            Ok(device) => {
                drop(device);
                assert_eq!(machine.available(), before);
                break;
            }
            Err(NoMemory) => assert_eq!(machine.available(), before),
        }
        allocations += 1;
    }
    // 10 frames of entries, one of names, the root.
    assert_eq!(allocations, 12);
}

#[test]
fn too_many_slots_are_refused() {
    let machine = Machine::new(64, 1);
    let made = Compressed::new(machine, leak::<Scratch>(1), 1 << 40);
    assert_eq!(made.err(), Some(NoMemory));
    assert_eq!(machine.available(), 63);
}

#[test]
fn a_write_that_fails_leaves_an_empty_slot() {
    for noisy in (8..=4096).step_by(8) {
        let (machine, device) = device(64, 1, 10);
        let page = mixed(5, noisy);
        let before = machine.available();
        let mut allocations = 0;
        loop {
            machine.fail_after(allocations);
            match device.write(1, &page) {
                Ok(()) => break,
                Err(error) => assert_eq!(error, DeviceError::Full),
            }
            assert_eq!(machine.available(), before);
            assert_eq!(device.usage().pages(), 0);
            assert_eq!(device.read(1, &mut [0; 4096]), Err(DeviceError::Failed));
            allocations += 1;
        }
        assert!((1..=4).contains(&allocations), "{allocations}");
    }
}
