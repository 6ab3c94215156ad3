//! Compressed memory: what is written comes back, damage is found, memory returns.

use std::collections::HashMap;
use std::ptr::NonNull;

use faultless_frames::Use;
use faultless_paging::{Frame, PhysicalMemory};
use faultless_swap::{Compressed, DeviceError, Page, Scratch, SwapDevice, Usage};
use proptest::prelude::*;

use crate::machine::{Machine, device};
use crate::pages::{self, mixed, noise, word};

const MEMORY: u64 = 4096;

fn reads(device: &dyn SwapDevice, slot: u64) -> Result<Page, DeviceError> {
    let mut page = [0xaa; 4096];
    device.read(slot, &mut page).map(|()| page)
}

#[test]
fn every_kind_of_page_comes_back() {
    let (_, device) = device(MEMORY, 1, 600);
    let pages: Vec<Page> = (0..512).map(|at| mixed(at + 1, at as usize * 8)).collect();
    for (slot, page) in pages.iter().enumerate() {
        device.write(slot as u64, page).unwrap();
    }
    device.write(599, &word(0)).unwrap();
    for (slot, page) in pages.iter().enumerate() {
        assert!(reads(&device, slot as u64) == Ok(*page), "slot {slot}");
    }
    assert!(reads(&device, 599) == Ok(word(0)));
    let usage = device.usage();
    assert_eq!(usage.pages(), 513);
    assert_eq!(usage.words, 2);
    assert!(usage.compressed > 300 && usage.plain > 50, "{usage:?}");
}

#[test]
fn a_page_of_one_word_takes_no_memory() {
    let (machine, device) = device(MEMORY, 1, 1000);
    let before = machine.available();
    for slot in 0..1000 {
        device.write(slot, &word(slot)).unwrap();
    }
    assert_eq!(machine.available(), before);
    assert_eq!(device.usage().frames, 0);
}

#[test]
fn an_empty_slot_and_one_beyond_the_end_fail() {
    let (_, device) = device(MEMORY, 1, 10);
    assert_eq!(reads(&device, 0), Err(DeviceError::Failed));
    assert_eq!(reads(&device, 10), Err(DeviceError::Failed));
    assert_eq!(device.write(10, &word(1)), Err(DeviceError::Failed));
    device.write(3, &word(1)).unwrap();
    device.discard(3);
    device.discard(10);
    assert_eq!(reads(&device, 3), Err(DeviceError::Failed));
    assert_eq!(device.slots(), 10);
}

#[test]
fn any_flipped_bit_of_stored_memory_is_found() {
    for noisy in [64, 1000, 2400, 4096] {
        let (machine, device) = device(MEMORY, 1, 10);
        let page = mixed(7, noisy);
        device.write(3, &page).unwrap();
        let bytes = device.usage().bytes as usize;
        let mut frames = Vec::new();
        device.for_each_frame(&mut |frame| frames.push(frame));
        // The frames of the slots' entries come first, and a group begins with a header.
        let mut header = if noisy == 4096 { 0 } else { 64 };
        let mut found = 0;
        for frame in &frames[TABLES..] {
            found += flips(machine.pointer(*frame), header, &device, &page);
            header = 0;
        }
        assert_eq!(found, bytes, "bytes whose damage was found");
    }
}

/// The frames of the entries of a few slots.
const TABLES: usize = 3;

/// Flips a bit in every byte of a frame, and counts the times that this was found.
fn flips(start: NonNull<u8>, header: usize, device: &dyn SwapDevice, page: &Page) -> usize {
    // SAFETY: a frame of the device, which nothing uses at the moment.
    let byte = |at: usize| unsafe { &mut *start.as_ptr().add(at) };
    (header..4096)
        .filter(|&at| {
            *byte(at) ^= 1 << (at % 8);
            let damaged = reads(device, 3);
            *byte(at) ^= 1 << (at % 8);
            assert!(reads(device, 3) == Ok(*page));
            match damaged {
                Ok(read) => assert!(read == *page),
                Err(error) => assert_eq!(error, DeviceError::Damaged),
            }
            damaged.is_err()
        })
        .count()
}

#[test]
fn memory_returns() {
    let (machine, device) = device(MEMORY, 1, 1000);
    let before = machine.available();
    for seed in 0..1000 {
        device.write(seed, &pages::any(seed)).unwrap();
    }
    let usage = device.usage();
    assert_eq!(machine.available() + usage.frames, before);
    // Written again, in place.
    for seed in 0..1000 {
        device.write(seed, &pages::any(seed + 1)).unwrap();
    }
    let accounts = machine.audit(&[&device]);
    assert_eq!(accounts.lost(), 0);
    assert!(accounts.of(Use::SWAP) > usage.frames);
    for slot in 0..1000 {
        device.discard(slot);
    }
    assert_eq!(machine.available(), before);
    assert_eq!(device.usage(), Usage::default());
    for slot in 0..1000 {
        device.write(slot, &pages::any(slot)).unwrap();
    }
    drop(device);
    // All but the shared zero page.
    assert_eq!(machine.available(), MEMORY - 1);
    assert_eq!(machine.audit(&[]).lost(), 0);
}

#[test]
fn a_full_device_keeps_what_it_has() {
    let (machine, device) = device(64, 1, 200);
    let mut slot = 0;
    while device.write(slot, &noise(slot)).is_ok() {
        slot += 1;
    }
    assert_eq!(machine.available(), 0);
    assert_eq!(device.write(slot, &noise(slot)), Err(DeviceError::Full));
    // A page of one word needs nothing.
    device.write(slot, &word(1)).unwrap();
    for kept in 0..slot {
        assert!(reads(&device, kept) == Ok(noise(kept)));
    }
    // A slot is written again in its own memory.
    device.write(0, &noise(77)).unwrap();
    assert!(reads(&device, 0) == Ok(noise(77)));
}

#[test]
fn frames_are_well_filled() {
    let (_, device) = device(MEMORY, 1, 4096);
    let text = include_str!("../../src/compressed/class.rs").as_bytes();
    let pages = text.as_chunks::<4096>().0;
    for turn in 0..100 {
        for (at, page) in pages.iter().enumerate() {
            let slot = (turn * pages.len() + at) as u64;
            device.write(slot, page).unwrap();
        }
    }
    let usage = device.usage();
    println!("{usage:?}");
    assert_eq!(usage.plain, 0);
    assert!(usage.frames < usage.pages() * 2 / 3);
    assert!(usage.frames * 4096 < usage.bytes + usage.bytes / 8 + (64 << 10));
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Write(u64, u64),
    Read(u64),
    Discard(u64),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        3 => (0..40u64, any::<u64>()).prop_map(|(slot, seed)| Operation::Write(slot, seed)),
        2 => (0..40u64).prop_map(Operation::Read),
        1 => (0..40u64).prop_map(Operation::Discard),
    ];
    prop::collection::vec(operation, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// With memory for fewer pages than slots: a device acts like a map that may refuse to insert.
    #[test]
    fn a_device_is_a_map(operations in operations()) {
        let (machine, device) = device(32, 1, 40);
        let before = machine.available();
        let mut map = HashMap::new();
        for operation in operations {
            match operation {
                Operation::Write(slot, seed) => match device.write(slot, &pages::any(seed)) {
                    Ok(()) => {
                        map.insert(slot, seed);
                    }
                    Err(error) => {
                        prop_assert_eq!(error, DeviceError::Full);
                        map.remove(&slot);
                    }
                },
                Operation::Read(slot) => match map.get(&slot) {
                    Some(seed) => prop_assert!(reads(&device, slot) == Ok(pages::any(*seed))),
                    None => prop_assert_eq!(reads(&device, slot), Err(DeviceError::Failed)),
                },
                Operation::Discard(slot) => {
                    map.remove(&slot);
                    device.discard(slot);
                }
            }
            prop_assert_eq!(device.usage().pages(), map.len() as u64);
            prop_assert_eq!(device.usage().frames + machine.available(), before);
        }
    }
}

#[test]
fn a_scratch_memory_is_made_in_its_place() {
    let places: Vec<_> = (0..2).map(|_| Box::new_uninit()).collect();
    let cpus = places
        .into_iter()
        .map(|place| Scratch::place(Box::leak(place)));
    for scratch in cpus {
        let machine = Machine::new(64, 1);
        let device = Compressed::new(machine, std::slice::from_ref(scratch), 10).unwrap();
        device.write(1, &mixed(1, 1000)).unwrap();
        assert!(reads(&device, 1) == Ok(mixed(1, 1000)));
    }
}

#[test]
fn a_large_device_needs_16_bytes_a_slot() {
    let (machine, device) = device(MEMORY, 1, 131_072);
    let mut frames = 0;
    device.for_each_frame(&mut |_: Frame| frames += 1);
    assert_eq!(frames, 512 + 2);
    assert_eq!(machine.available(), MEMORY - 1 - frames);
}
