//! Loom models of a page that a fork shares, and that leaves for a swap device: both entries name the slot.
//!
//! At most two preemptions in the quick form.

use std::sync::Arc;

use crate::model::{PAGE, Processor, RW, Space, World, explore};
use faultless_mm::{AgingMode, Policy, remap_flags};

const OLD: u64 = 7;
const NEW: u64 = 9;

fn reclaim(space: &Space) -> bool {
    space.memory().machine().step();
    space.memory().reclaim_some()
}

/// A page that a child shares, and that both count as unused.
fn forked() -> (Arc<World>, Space) {
    let world = World::new(2, Policy::Speculative);
    world.swap(2);
    world.map(0, 1, RW);
    Processor::new(world.space(), 1).store(0, OLD).unwrap();
    let child = world.space().fork().unwrap();
    world.space().clear_accessed(AgingMode::All);
    child.clear_accessed(AgingMode::All);
    (world, child)
}

#[test]
fn beside_a_store() {
    explore(Some(2), || {
        let (world, child) = forked();
        let sweep = world.run(1, |cpu| reclaim(cpu.space()));
        world.cpu().store(0, NEW).unwrap();
        sweep.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(NEW));
        world.finish_with(vec![child]);
    });
}

#[test]
fn beside_another_fork() {
    explore(Some(2), || {
        let (world, child) = forked();
        let sweep = world.run(1, |cpu| reclaim(cpu.space()));
        let second = world.space().fork().unwrap();
        sweep.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(OLD));
        world.finish_with(vec![child, second]);
    });
}
#[test]
fn beside_mremap() {
    explore(Some(2), || {
        let (world, child) = forked();
        let sweep = world.run(1, |cpu| reclaim(cpu.space()));
        let to = remap_flags::MAYMOVE | remap_flags::FIXED;
        world.space().mremap(0, PAGE, PAGE, to, 2 * PAGE).unwrap();
        sweep.join().unwrap();
        assert_eq!(world.cpu().load(2 * PAGE), Ok(OLD));
        world.finish_with(vec![child]);
    });
}

#[test]
fn beside_the_end_of_the_child() {
    explore(Some(2), || {
        let (world, child) = forked();
        let sweep = world.run(1, |cpu| reclaim(cpu.space()));
        child.destroy();
        sweep.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(OLD));
        world.finish();
    });
}
