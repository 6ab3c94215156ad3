//! Each thread changes pages of its own, with known content, and pages that all threads share. A thread's own
//! pages stay as it left them, whatever the other threads do; a child has them as they are.

use crate::model::{FIXED, PAGE, Processor, RW, World, explore};
use faultless_mm::{PROT_READ, SegvCode, advice, flags, remap_flags};
use shuttle::rand::{Rng, thread_rng};

const ANYWHERE: u32 = flags::PRIVATE | flags::ANONYMOUS;
/// Pages of each thread.
const OWN: u64 = 5;
const THREADS: u32 = 3;
/// The first shared page.
const COMMON: u64 = THREADS as u64 * OWN;
const STEPS: usize = 7;

/// The expected state of a mapped page.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mapped {
    writable: bool,
    word: u64,
}

struct Owner<'a> {
    cpu: &'a Processor<'a>,
    world: &'a World,
    first: u64,
    own: [Option<Mapped>; OWN as usize],
}

impl<'a> Owner<'a> {
    fn new(cpu: &'a Processor<'a>, world: &'a World) -> Self {
        Self {
            cpu,
            world,
            first: u64::from(cpu.number()) * OWN,
            own: [None; OWN as usize],
        }
    }

    fn address(&self, page: u64) -> u64 {
        (self.first + page) * PAGE
    }

    /// Whether an operation on these pages succeeds that stops at the first hole. Applies `change` to the
    /// pages before it.
    fn up_to_a_hole(&mut self, from: u64, pages: u64, change: impl Fn(&mut Mapped)) -> bool {
        let range = from as usize..(from + pages) as usize;
        for page in &mut self.own[range] {
            match page {
                Some(mapped) => change(mapped),
                None => return false,
            }
        }
        true
    }

    fn step(&mut self) {
        let (cpu, space) = (self.cpu, self.cpu.space());
        let mut rng = thread_rng();
        let from = rng.gen_range(0..OWN);
        let pages = rng.gen_range(1..=OWN - from);
        let (at, length) = (self.address(from), pages * PAGE);
        let range = from as usize..(from + pages) as usize;
        match rng.gen_range(0..17) {
            0 | 1 => {
                assert_eq!(space.mmap(at, length, RW, FIXED), Ok(at));
                let (writable, word) = (true, 0);
                self.own[range].fill(Some(Mapped { writable, word }));
            }
            2 | 3 => {
                assert_eq!(space.munmap(at, length), Ok(()));
                self.own[range].fill(None);
                for page in from..from + pages {
                    assert_eq!(cpu.load(self.address(page)), Err(SegvCode::MapErr));
                }
            }
            4 | 5 => {
                let writable = rng.r#gen();
                let result = space.mprotect(at, length, if writable { RW } else { PROT_READ });
                let whole = self.up_to_a_hole(from, pages, |page| page.writable = writable);
                assert_eq!(result.is_ok(), whole);
            }
            6 | 7 => self.move_some(from, pages),
            8 => {
                let result = space.madvise(at, length, advice::DONTNEED);
                let some = self.own[range].iter_mut();
                let there = some.flatten().map(|page| page.word = 0).count();
                assert_eq!(result.is_ok(), there as u64 == pages);
            }
            9 | 10 => self.fork(),
            11 => {
                let new = space.mmap(0, length, RW, ANYWHERE).unwrap();
                cpu.store(new, 77).unwrap();
                assert_eq!(cpu.load(new), Ok(77));
                space.munmap(new, length).unwrap();
            }
            16 => {
                // It may fail, and changes nothing.
                let _ = space.madvise(at, length, advice::COLLAPSE);
            }
            12 | 13 => {
                let (page, pages) = (COMMON + rng.gen_range(0..4), rng.gen_range(1..5));
                if rng.r#gen() {
                    let _ = space.mmap(page * PAGE, pages * PAGE, RW, FIXED);
                    let _ = cpu.store(page * PAGE, 1);
                } else {
                    let _ = space.munmap(page * PAGE, pages * PAGE);
                }
            }
            _ => {
                let _ = space.mlock(at, length, 0);
                for page in 0..OWN {
                    let _ = space.munlock(self.address(page), PAGE);
                }
            }
        }
    }

    /// Moves pages within the thread's own range.
    fn move_some(&mut self, from: u64, pages: u64) {
        let to = thread_rng().gen_range(0..OWN);
        let is_apart = to + pages <= from || from + pages <= to;
        let source = &self.own[from as usize..(from + pages) as usize];
        let writable = source[0].map(|page| page.writable);
        let is_one = source
            .iter()
            .all(|page| page.is_some() && page.map(|page| page.writable) == writable);
        if to + pages > OWN || !is_apart || !is_one {
            return;
        }
        let flags = remap_flags::MAYMOVE | remap_flags::FIXED;
        let (at, length, target) = (self.address(from), pages * PAGE, self.address(to));
        let moved = self.cpu.space().mremap(at, length, length, flags, target);
        assert_eq!(moved, Ok(target));
        for page in 0..pages as usize {
            self.own[to as usize + page] = self.own[from as usize + page].take();
        }
    }

    fn fork(&self) {
        let child = self.cpu.space().fork().unwrap();
        for (page, own) in (self.first..).zip(&self.own) {
            assert_eq!(child.lookup(page * PAGE).is_some(), own.is_some());
            if let Some(mapped) = own {
                let word = self.world.word_of(&child, page);
                assert_eq!(word, mapped.word, "the child's page {page}");
            }
        }
        child.destroy();
    }

    /// Checks some pages, and writes to some of these.
    fn check(&mut self, number: u64) {
        let mut rng = thread_rng();
        for page in 0..OWN {
            let at = self.address(page);
            match &mut self.own[page as usize] {
                _ if rng.r#gen() => {}
                None => assert_eq!(self.cpu.load(at), Err(SegvCode::MapErr)),
                Some(mapped) => {
                    assert_eq!(self.cpu.load(at), Ok(mapped.word), "page {page}");
                    if !mapped.writable {
                        assert_eq!(self.cpu.store(at, 1), Err(SegvCode::AccErr));
                    } else if rng.r#gen() {
                        mapped.word = 100 * (u64::from(self.cpu.number()) + 1) + number;
                        self.cpu.store(at, mapped.word).unwrap();
                    }
                }
            }
        }
    }

    fn run(&mut self) {
        for number in 0..STEPS as u64 {
            self.step();
            self.check(number);
        }
    }
}

#[test]
fn owned_pages_stay_owned() {
    explore(600, |policy| {
        let world = World::new(THREADS, policy);
        let others = [1, 2].map(|number| {
            let own = world.clone();
            world.run(number, move |cpu| Owner::new(cpu, &own).run())
        });
        Owner::new(&world.cpu(), &world).run();
        others.into_iter().for_each(|thread| thread.join().unwrap());
        world.finish();
    });
}
