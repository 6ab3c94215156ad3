//! Loom model of a device that is revoked beside a program's use of its mapping. After the revocation no
//! entry and no TLB leads to the device, and an access raises SIGBUS.
//!
//! At most three preemptions in the quick form.

use crate::model::{PAGE, Processor, World, explore};
use faultless_mm::{Outcome, Policy};
use faultless_sync::{Mutant, with_flaw};

/// Runs `act` on CPU 1, beside a revocation on CPU 0.
fn revoked(is_there: bool, bound: usize, act: fn(&Processor<'_>)) {
    explore(Some(bound), move || {
        let world = World::new(2, Policy::Speculative);
        let device = world.device();
        world.map_device(&device, 0, 1);
        if is_there {
            world.cpu().store_file(0, 7).unwrap();
        }
        let other = world.run(1, move |cpu| act(cpu));
        device.revoke();
        let machine = world.space().memory().machine();
        assert!(
            !machine.is_device_cached(),
            "a device is reached that was revoked"
        );
        other.join().unwrap();
        assert!(
            !machine.is_device_cached(),
            "a device is reached that was revoked"
        );
        assert_eq!(
            world.space().translate(0),
            None,
            "a page of a revoked device"
        );
        let late = world.cpu().load_file(0);
        assert!(!matches!(late, Ok(_)), "{late:?}");
        device.restore();
        drop(device);
        world.finish();
    });
}

fn load(cpu: &Processor<'_>) {
    let seen = cpu.load_file(0);
    assert!(matches!(seen, Ok(_) | Err(Outcome::Bus)), "{seen:?}");
}

fn store(cpu: &Processor<'_>) {
    let seen = cpu.store_file(0, 1);
    assert!(matches!(seen, Ok(()) | Err(Outcome::Bus)), "{seen:?}");
}

fn unmap(cpu: &Processor<'_>) {
    cpu.space().munmap(0, PAGE).unwrap();
}

#[test]
fn a_page_that_comes_goes() {
    revoked(false, 3, load);
}

#[test]
fn a_page_that_is_stored_to_goes() {
    revoked(true, 3, store);
}

/// The revocation waits for a pending unmap of the device's page.
#[test]
fn a_page_that_is_unmapped_is_gone() {
    revoked(true, 3, unmap);
}

#[test]
#[should_panic(expected = "a device is reached that was revoked")]
fn broken_size_not_validated() {
    with_flaw(Mutant::SizeNotValidated, || revoked(false, 3, load));
}

#[test]
#[should_panic(expected = "a device is reached that was revoked")]
fn broken_claim_without_fence() {
    with_flaw(Mutant::ClaimWithoutFence, || revoked(false, 3, load));
}

#[test]
#[should_panic(expected = "a device is reached that was revoked")]
fn broken_departures_not_awaited() {
    with_flaw(Mutant::DeparturesNotAwaited, || revoked(true, 3, unmap));
}
