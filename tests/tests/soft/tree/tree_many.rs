//! Very many mappings and holes in one address space.

use faultless_mm::{Policy, flags};
use faultless_soft::{SoftCpu, SoftSpace};
use faultless_tests::model::{Kind, Model, line};
use faultless_tests::random::{Numbers, seed};
use faultless_tests::{available, budget, machine};

const PAGE: u64 = 4096;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;
const MANY: usize = 100_000;

/// A random order of `0..count`.
fn shuffled(count: usize, numbers: &mut Numbers) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for i in (1..count).rev() {
        order.swap(i, numbers.below(i as u64 + 1) as usize);
    }
    order
}

/// Three protections in turn, so that no neighbours merge.
fn prot(number: usize) -> u32 {
    [3, 1, 5][number % 3]
}

fn shown(space: &SoftSpace) -> Vec<(u64, u64, u32, bool)> {
    let mut lines = Vec::new();
    space.maps(&mut |entry| lines.push(line(&entry)));
    lines
}

fn found(space: &SoftSpace, at: u64) -> Option<u32> {
    let p = space.lookup(at)?.protection;
    Some(u32::from(p.read) | u32::from(p.write) << 1 | u32::from(p.execute) << 2)
}

#[test]
fn a_hundred_thousand_mappings() {
    let seed = seed();
    eprintln!("FAULTLESS_SEED={seed}");
    let mut numbers = Numbers(seed);
    let memory = machine(1, 256);
    let before = available(memory);
    let space = SoftCpu::attend(memory, 0, || {
        faultless_soft::Soft::space(memory, Policy::default()).unwrap()
    });
    SoftCpu::run(&space, 0, |cpu| {
        let space = cpu.space();
        // One page each, downwards without a hole.
        let mut places = Vec::with_capacity(MANY);
        for number in 0..MANY {
            let at = space.mmap(0, PAGE, prot(number), ANON).unwrap();
            assert_eq!(
                places.last().map_or(at, |last| last - PAGE),
                at,
                "mapping {number}"
            );
            places.push(at);
        }
        assert_eq!(space.verify().unwrap().mapped, MANY as u64);
        let lines = shown(space);
        assert_eq!(lines.len(), MANY);
        for (line, number) in lines.iter().zip((0..MANY).rev()) {
            let page = places[number] / PAGE;
            assert_eq!(*line, (page, page + 1, prot(number), false));
        }
        for number in shuffled(MANY, &mut numbers) {
            assert_eq!(found(space, places[number]), Some(prot(number)));
        }

        // Half of them are unmapped; new mappings fill the holes from the highest down.
        let order = shuffled(MANY, &mut numbers);
        let (gone, kept) = order.split_at(MANY / 2);
        for &number in gone {
            assert_eq!(space.munmap(places[number], PAGE), Ok(()));
            assert_eq!(found(space, places[number]), None);
        }
        space.verify().unwrap();
        let mut holes: Vec<usize> = gone.to_vec();
        holes.sort_unstable();
        for &number in &holes {
            assert_eq!(
                space.mmap(0, PAGE, prot(number), ANON),
                Ok(places[number]),
                "hole {number}"
            );
        }
        assert_eq!(space.verify().unwrap().mapped, MANY as u64);
        assert_eq!(shown(space).len(), MANY);

        for &number in kept.iter().chain(gone) {
            assert_eq!(found(space, places[number]), Some(prot(number)));
            assert_eq!(space.munmap(places[number], PAGE), Ok(()));
            assert_eq!(found(space, places[number]), None);
        }
        assert_eq!(space.verify().unwrap().mapped, 0);
        assert_eq!(shown(space), Vec::new());
    });
    faultless_tests::verify_and_destroy(space, before);
}

/// Holes of 1 to 4 pages everywhere, some below mappings that grow down.
#[test]
fn ten_thousand_holes() {
    let seed = seed();
    eprintln!("FAULTLESS_SEED={seed}");
    let mut numbers = Numbers(seed);
    let memory = machine(1, 64);
    let before = available(memory);
    let space = SoftCpu::attend(memory, 0, || {
        faultless_soft::Soft::space(memory, Policy::default()).unwrap()
    });
    let layout = *space.layout();
    let base = layout.mmap_base / PAGE;
    let mut model = Model::new(layout.lowest / PAGE, base, layout.end / PAGE);
    SoftCpu::run(&space, 0, |cpu| {
        let space = cpu.space();
        let mut at = base;
        for number in 0..10_000 {
            let kind = Kind {
                prot: prot(number),
                grows_down: numbers.below(50) == 0,
                no_reserve: false,
            };
            at -= 1 + numbers.below(4) + 1;
            let grows = if kind.grows_down { flags::GROWSDOWN } else { 0 };
            let map = ANON | flags::FIXED | grows;
            assert_eq!(space.mmap(at * PAGE, PAGE, kind.prot, map), Ok(at * PAGE));
            model.assign(at, at + 1, Some(kind));
        }
        let kind = Kind {
            prot: 3,
            grows_down: false,
            no_reserve: false,
        };
        for round in budget(1_500).rounds() {
            let count = 1 + numbers.below(5);
            let chosen = space
                .mmap(0, count * PAGE, kind.prot, ANON)
                .map(|at| at / PAGE);
            assert_eq!(chosen, model.map_near(0, count, kind), "round {round}");
            if numbers.below(3) == 0 {
                let at = at + numbers.below(base - at);
                assert_eq!(space.munmap(at * PAGE, PAGE), Ok(()));
                model.assign(at, at + 1, None);
            }
        }
        assert_eq!(shown(space), model.maps());
        space.verify().unwrap();
    });
    faultless_tests::verify_and_destroy(space, before);
}

/// `PROT_GROWSDOWN` reaches to the start of what `maps` shows as one mapping,
/// whatever parts it was made of.
#[test]
fn a_growing_mapping_of_parts() {
    const AT: u64 = 1 << 36;
    let (_, space) = faultless_tests::space(1, 16, Policy::default());
    SoftCpu::run(&space, 0, |_| {
        let grows = ANON | flags::FIXED | flags::GROWSDOWN;
        for page in [0, 2, 1] {
            space.mmap(AT + page * PAGE, PAGE, 3, grows).unwrap();
        }
        let page = AT / PAGE;
        assert_eq!(shown(&space), [(page, page + 3, 3, true)]);
        let grows_down = 0x0100_0000;
        assert_eq!(space.mprotect(AT + 2 * PAGE, PAGE, 1 | grows_down), Ok(()));
        assert_eq!(shown(&space), [(page, page + 3, 1, true)]);
    });
}
