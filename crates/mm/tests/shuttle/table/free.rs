//! Tables that several unmaps leave empty together (also `loom/table/free.rs`).

use crate::model::{PAGE, Processor, RW, World, explore_under};
use faultless_mm::{Policy, Taken};

const POLICIES: &[Policy] = &[Policy::Speculative];

/// Three CPUs unmap neighbours in tables that they share. Pinned pages are kept until the flush. The last
/// unmap frees the tables, on every level.
#[test]
fn the_last_of_three_frees_their_tables() {
    fn three(ways: [(u64, u64); 3], pinned: u64) {
        let world = World::new(3, Policy::Speculative);
        for (first, count) in ways {
            world.map(first, count, RW);
            let used = (first..first + count).filter(|page| count < 6 || page % 3 == 0);
            used.for_each(|page| world.cpu().store(page * PAGE, 1).unwrap());
        }
        let space = world.space();
        let ends = (0..3).filter(|way| pinned >> way & 1 != 0).flat_map(|way| {
            let (first, count) = ways[way];
            [first, first + count - 1]
        });
        let pins = ends.map(|page| space.pin(page * PAGE, Taken::ToRead).ok().unwrap());
        let pins: Vec<_> = pins.collect();
        let unmap = |cpu: &Processor<'_>, (first, count): (u64, u64)| {
            cpu.space().munmap(first * PAGE, count * PAGE).unwrap();
        };
        let others = [1, 2].map(|number| {
            let way = ways[number as usize];
            world.run(number, move |cpu| unmap(cpu, way))
        });
        unmap(&world.cpu(), ways[0]);
        others.into_iter().for_each(|other| other.join().unwrap());
        drop(pins);
        let census = world.finish();
        let left = (census.pages, census.mapped, census.tables);
        assert_eq!(left, (0, 0, 1), "a table is left");
    }
    explore_under(POLICIES, 60, |_| {
        for ways in [
            [(0, 1), (1, 1), (2, 2)],
            [(0, 6), (8, 4), (13, 2)],
            [(2, 17), (20, 1), (1, 1)],
            [(0, 4), (5, 11), (16, 8)],
        ] {
            [0, 1, 6, 7]
                .into_iter()
                .for_each(|pinned| three(ways, pinned));
        }
    });
}
