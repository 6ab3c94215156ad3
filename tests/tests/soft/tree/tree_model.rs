//! The mapping tree against a simple model, through the operations of an address
//! space: mappings, chosen addresses, errors and invariants after every step.

use faultless_mm::{Layout, OwnedSpace, Policy, SegvCode, flags};
use faultless_soft::{SoftCpu, SoftMemory, Trap};
use faultless_tests::model::{GUARD_GAP, HUGE, Kind, Model, line};
use faultless_tests::random::cases;
use faultless_tests::{available, machine};
use proptest::prelude::*;
use proptest::test_runner::TestError;

const PAGE: u64 = 4096;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;

/// An address at which slots of every level but the root's begin.
const TOP: u64 = 1 << 30;
const LOW: u64 = 16;
const BASE: u64 = TOP + 300;
const END: u64 = TOP + 5000;

/// Boundaries of slots of 64, 4096, 64^3, 64^4 and 64^5 pages, some of them of
/// that level alone.
const BOUNDARIES: [u64; 8] = [
    TOP,
    TOP,
    TOP - 64,
    TOP - 4096,
    TOP - (1 << 18),
    TOP - (1 << 24),
    (1 << 29) + 64,
    (1 << 24) + 4096,
];

#[derive(Clone, Copy, Debug)]
enum Step {
    MapAt {
        at: u64,
        count: u64,
        kind: Kind,
        replace: bool,
    },
    MapNear {
        hint: u64,
        count: u64,
        kind: Kind,
    },
    Unmap {
        at: u64,
        count: u64,
    },
    Protect {
        at: u64,
        count: u64,
        prot: u32,
    },
    Touch {
        page: u64,
        write: bool,
    },
}

fn near_boundary() -> impl Strategy<Value = u64> {
    let distance = prop_oneof![6 => 0..20u64, 3 => 0..300u64, 1 => 0..9000u64];
    (
        prop::sample::select(&BOUNDARIES[..]),
        distance,
        any::<bool>(),
    )
        .prop_map(|(b, d, up)| if up { b + d } else { b - d }.min(END - 1))
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![
        10 => 1..8u64,
        4 => 1..200u64,
        2 => 60..70u64,
        2 => 500..520u64,
        2 => (1..4u64).prop_map(|n| n * HUGE),
        2 => 4090..4100u64,
        1 => (1 << 18) - 4..(1u64 << 18) + 4,
        1 => (1 << 24) - 4..(1u64 << 24) + 4,
        1 => (1 << 28) - 4..(1u64 << 28) + 4,
    ]
}

fn kind() -> impl Strategy<Value = Kind> {
    let prot = prop_oneof![4 => Just(3), 2 => Just(1), 1 => Just(0), 1 => Just(5), 1 => Just(7)];
    (prot, prop::bool::weighted(0.2), prop::bool::weighted(0.1)).prop_map(
        |(prot, grows_down, no_reserve)| Kind {
            prot,
            grows_down,
            no_reserve,
        },
    )
}

fn step(
    at: impl Strategy<Value = u64> + Clone + 'static,
    count: impl Strategy<Value = u64> + Clone + 'static,
) -> impl Strategy<Value = Step> {
    let place = || (at.clone(), count.clone());
    prop_oneof![
        5 => (place(), kind()).prop_map(
            |((at, count), kind)| Step::MapAt { at, count, kind, replace: true }),
        1 => (place(), kind()).prop_map(
            |((at, count), kind)| Step::MapAt { at, count, kind, replace: false }),
        2 => (place(), kind()).prop_map(
            |((hint, count), kind)| Step::MapNear { hint, count, kind }),
        6 => (count.clone(), kind()).prop_map(
            |(count, kind)| Step::MapNear { hint: 0, count, kind }),
        6 => place().prop_map(|(at, count)| Step::Unmap { at, count }),
        4 => (place(), kind()).prop_map(
            |((at, count), kind)| Step::Protect { at, count, prot: kind.prot }),
        3 => (at.clone(), any::<bool>()).prop_map(|(page, write)| Step::Touch { page, write }),
    ]
}

fn map_flags(kind: Kind) -> u32 {
    let grows = if kind.grows_down { flags::GROWSDOWN } else { 0 };
    let no_reserve = if kind.no_reserve { flags::NORESERVE } else { 0 };
    ANON | grows | no_reserve
}

/// Performs a step in the space and in the model; an error says what differs.
fn take(cpu: &SoftCpu<'_>, model: &mut Model, step: Step) -> Result<(), String> {
    let space = cpu.space();
    let pages = |result: Result<u64, _>| result.map(|at| at / PAGE);
    let (real, expected) = match step {
        Step::MapAt {
            at,
            count,
            kind,
            replace,
        } => {
            let fixed = if replace {
                flags::FIXED
            } else {
                flags::FIXED_NOREPLACE
            };
            let real = space.mmap(at * PAGE, count * PAGE, kind.prot, map_flags(kind) | fixed);
            (pages(real), model.map_at(at, count, kind, replace))
        }
        Step::MapNear { hint, count, kind } => {
            let real = space.mmap(hint * PAGE, count * PAGE, kind.prot, map_flags(kind));
            (pages(real), model.map_near(hint, count, kind))
        }
        Step::Unmap { at, count } => {
            let real = space.munmap(at * PAGE, count * PAGE);
            (real.map(|()| 0), model.unmap(at, count).map(|()| 0))
        }
        Step::Protect { at, count, prot } => {
            let real = space.mprotect(at * PAGE, count * PAGE, prot);
            (real.map(|()| 0), model.protect(at, count, prot).map(|()| 0))
        }
        Step::Touch { page, write } => return touch(cpu, model, page, write),
    };
    if real != expected {
        return Err(format!("{real:x?} instead of {expected:x?}"));
    }
    Ok(())
}

fn touch(cpu: &SoftCpu<'_>, model: &Model, page: u64, write: bool) -> Result<(), String> {
    let address = page * PAGE;
    let real = if write {
        cpu.store(address, page)
    } else {
        cpu.load(address).map(drop)
    };
    let segv = |code| Err(Trap::Segv { code, address });
    let expected = match model.at(page) {
        Some(kind) if kind.prot & if write { 2 } else { 7 } != 0 => Ok(()),
        Some(_) => segv(SegvCode::AccErr),
        None => segv(SegvCode::MapErr),
    };
    if real == expected {
        Ok(())
    } else {
        Err(format!("{real:x?} instead of {expected:x?}"))
    }
}

/// Whether the step would grow a stack, which the model leaves out.
fn grows(model: &Model, step: Step) -> bool {
    let Step::Touch { page, .. } = step else {
        return false;
    };
    model.at(page).is_none() && model.above(page).is_some_and(|p| p.kind.grows_down)
}

fn compare(cpu: &SoftCpu<'_>, model: &Model) -> Result<(), String> {
    let mut maps = Vec::new();
    cpu.space().maps(&mut |entry| maps.push(line(&entry)));
    if maps != model.maps() {
        return Err(format!("maps {maps:x?} instead of {:x?}", model.maps()));
    }
    let census = cpu.space().verify().map_err(|v| v.to_string())?;
    let mapped: u64 = model.pieces().iter().map(|p| p.end - p.start).sum();
    if census.mapped != mapped {
        return Err(format!(
            "{} pages are mapped instead of {mapped}",
            census.mapped
        ));
    }
    let pieces = model.pieces().len() as u64;
    if cpu.space().totals().mappings != pieces {
        let counted = cpu.space().totals().mappings;
        return Err(format!(
            "{counted} mappings are counted instead of {pieces}"
        ));
    }
    Ok(())
}

/// Runs `steps` in a new address space, which starts with `filled` pages mapped.
fn run(memory: &'static SoftMemory, filled: u64, steps: &[Step]) -> Result<(), String> {
    let before = available(memory);
    let layout = Layout {
        lowest: LOW * PAGE,
        end: END * PAGE,
        mmap_base: BASE * PAGE,
        ..Layout::LINUX_X86_64
    };
    let policy = Policy::ALL[steps.len() % Policy::ALL.len()];
    let space = SoftCpu::attend(memory, 0, || OwnedSpace::new(memory, policy, layout))
        .map_err(|e| e.to_string())?;
    let mut model = Model::new(LOW, BASE, END);
    let result = SoftCpu::run(&space, 0, |cpu| {
        if filled > 0 {
            let kind = Kind {
                prot: 0,
                grows_down: false,
                no_reserve: true,
            };
            let at = LOW;
            take(
                cpu,
                &mut model,
                Step::MapAt {
                    at,
                    count: filled,
                    kind,
                    replace: true,
                },
            )?;
        }
        for (i, &step) in steps.iter().enumerate() {
            if !grows(&model, step) {
                take(cpu, &mut model, step)
                    .and_then(|()| compare(cpu, &model))
                    .map_err(|why| format!("step {i}, {step:x?}: {why}"))?;
            }
        }
        Ok(())
    });
    SoftCpu::attend(memory, 0, || space.destroy());
    let after = available(memory);
    if result.is_ok() && after != before {
        return Err(format!("{before} frames before, {after} after"));
    }
    result
}

fn check(least: u64, filled: u64, most: usize, steps: impl Strategy<Value = Step>) {
    let memory = machine(1, 64);
    let scripts = prop::collection::vec(steps, 1..most);
    let result = cases(least, &scripts, |steps| {
        run(memory, filled, &steps).map_err(TestCaseError::fail)
    });
    match result {
        Ok(()) => {}
        Err((seed, TestError::Fail(why, steps))) => {
            let lines: String = steps.iter().map(|step| format!("  {step:x?}\n")).collect();
            panic!("FAULTLESS_SEED={seed}: {why}\n{lines}");
        }
        Err((seed, other)) => panic!("FAULTLESS_SEED={seed}: {other}"),
    }
}

#[test]
fn around_boundaries() {
    check(2000, 0, 40, step(near_boundary().boxed(), count().boxed()));
}

/// Little free space below the top: every search meets small holes, guard gaps, and
/// in the end finds nothing.
#[test]
fn where_room_is_short() {
    let filled = TOP - 1500 - LOW;
    let at = prop_oneof![3 => TOP - 1600..END, 2 => TOP - 40..BASE].boxed();
    let count = prop_oneof![
        8 => 1..8u64,
        4 => 1..100u64,
        2 => GUARD_GAP - 4..GUARD_GAP + 5,
        1 => Just(HUGE),
        1 => Just(2 * HUGE),
        1 => 1..2000u64,
    ];
    check(2000, filled, 60, step(at, count.boxed()));
}

/// Single pages and short holes, so that guard gaps contain many of them.
#[test]
fn among_small_holes() {
    let filled = TOP - 700 - LOW;
    let at = (TOP - 720..BASE).boxed();
    let count = prop_oneof![6 => 1..4u64, 3 => 1..20u64, 1 => 1..300u64];
    check(1500, filled, 120, step(at, count.boxed()));
}
