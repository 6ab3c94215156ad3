//! The RAM disk: what is written comes back, a slot keeps its frame, memory returns.

use faultless_frames::{NoMemory, Use};
use faultless_swap::{DeviceError, Page, RamDisk, SwapDevice};

use crate::machine::Machine;
use crate::pages::any;

fn read(device: &dyn SwapDevice, slot: u64) -> Result<Page, DeviceError> {
    let mut page = [0xaa; 4096];
    device.read(slot, &mut page).map(|()| page)
}

#[test]
fn pages_come_back() {
    let machine = Machine::new(64, 1);
    let before = machine.available();
    let device = RamDisk::new(machine, 20).unwrap();
    assert_eq!(device.slots(), 20);
    for slot in 0..20 {
        device.write(slot, &any(slot)).unwrap();
    }
    for slot in 0..20 {
        assert!(read(&device, slot) == Ok(any(slot)), "slot {slot}");
    }
    // The words, names of their frame, the root.
    assert_eq!(before - machine.available(), 20 + 3);
    let audit = machine.frames().audit().unwrap();
    device.for_each_frame(&mut |frame| audit.enter(frame, Use::SWAP).unwrap());
    assert_eq!(audit.close().of(Use::SWAP), 20 + 3);
    drop(device);
    assert_eq!(machine.available(), before);
}

#[test]
fn a_slot_without_a_page_fails_and_keeps_its_frame() {
    let machine = Machine::new(64, 1);
    let device = RamDisk::new(machine, 2).unwrap();
    assert_eq!(read(&device, 0), Err(DeviceError::Failed));
    assert_eq!(read(&device, 2), Err(DeviceError::Failed));
    assert_eq!(device.write(2, &any(1)), Err(DeviceError::Failed));
    device.write(0, &any(1)).unwrap();
    let before = machine.available();
    device.discard(0);
    device.discard(1);
    device.discard(2);
    assert_eq!(read(&device, 0), Err(DeviceError::Failed));
    machine.fail_after(0);
    device.write(0, &any(2)).unwrap();
    assert!(read(&device, 0) == Ok(any(2)));
    assert_eq!(device.write(1, &any(3)), Err(DeviceError::Full));
    assert_eq!(read(&device, 1), Err(DeviceError::Failed));
    assert_eq!(machine.available(), before);
}

#[test]
fn a_disk_that_cannot_be_made_leaves_nothing() {
    let machine = Machine::new(64, 1);
    let before = machine.available();
    for allocations in 0..3 {
        machine.fail_after(allocations);
        assert_eq!(RamDisk::new(machine, 512).err(), Some(NoMemory));
        assert_eq!(machine.available(), before);
    }
}
