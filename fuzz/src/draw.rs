//! Random programs, edge cases included. A program is a function of its number.

mod used;

use crate::KINDS;
use crate::address::{CENTRE, HEAP, HEAP_PAGES, HUGE, NEAR, PAGE, Scene};
use crate::arch::Arch;
use crate::kind::{Kind, Meaning};
use crate::op::{Actor, Op};
use crate::program::{MOST_PROCESSES, MOST_THREADS, Program};
use used::Used;

/// Words of each page that stores write.
const WORDS: [u64; 3] = [0, 64, PAGE - 8];
/// Addresses of mappings that are remembered.
const REMEMBERED: usize = 8;
/// Pages of a thread's own range in side-by-side operations.
const SLICE: u64 = 24;

/// The state from which arguments are generated.
pub struct Draw {
    state: u64,
    /// The end of user memory.
    user_end: u64,
    scene: Scene,
    /// Whether no mapping of the program grows down.
    still: bool,
    /// Whether no memory has two addresses, because threads act side by side.
    apart: bool,
    /// Whether the program has files.
    files: bool,
    /// Whether it clears soft-dirty bits. Then it counts no faults, because they depend on how mappings are merged.
    clears: bool,
    /// Whether the program locks memory. Then a move leaves no old place mapped.
    locks: bool,
    /// Whether it may lock everything. Then it has no huge mappings.
    locks_all: bool,
    /// Whether the program pages memory out. Then it frees nothing lazily.
    pages_out: bool,
    /// The range of the present side-by-side operation.
    slice: Option<(u64, u64)>,
    /// Addresses of recent mappings.
    mapped: [u64; REMEMBERED],
    count: usize,
    /// What a program that pages memory out has mapped to use it.
    used: Used,
}

/// Generates the program of a number for x86-64.
pub fn program(number: u64) -> Program {
    program_for(Arch::X86_64, number)
}

/// Generates the program of a number for an architecture.
pub fn program_for(arch: Arch, number: u64) -> Program {
    let mut draw = Draw {
        state: number,
        user_end: arch.user_end(),
        scene: Scene::Open,
        still: false,
        apart: false,
        files: false,
        clears: false,
        locks: false,
        locks_all: false,
        pages_out: false,
        slice: None,
        mapped: [0; REMEMBERED],
        count: 0,
        used: Used::default(),
    };
    draw.scene = draw.pick_from(&[
        (12, Scene::Open),
        (4, Scene::Sealed),
        (2, Scene::Heap),
        (1, Scene::Huge),
    ]);
    let is_huge = draw.scene == Scene::Huge;
    let (threads, processes) = draw.pick_from(&[
        (5, (1, 1)),
        (2, (MOST_THREADS as u64, 1)),
        (2, (1, MOST_PROCESSES as u64)),
        (1, (MOST_THREADS as u64, MOST_PROCESSES as u64)),
    ]);
    let side_by_side = threads > 1 && draw.scene != Scene::Heap && draw.chance(1, 2);
    draw.still = side_by_side || draw.chance(1, 2);
    draw.apart = side_by_side;
    draw.locks = draw.chance(2, 5);
    draw.locks_all = draw.locks && draw.chance(1, 2);
    draw.files = !side_by_side && draw.chance(2, 5);
    // What is in memory is not compared with huge pages.
    draw.clears = draw.chance(1, 4) && !is_huge;
    draw.pages_out = draw.chance(1, 3) && !is_huge;
    let length = 6 + draw.below(42) as usize;
    let mut ops = Vec::with_capacity(length);
    if draw.pages_out {
        draw.open(&mut ops);
    }
    let length = ops.len() + length;
    let mut alive = 1;
    let mut actor = Actor::default();
    while ops.len() < length {
        if draw.chance(1, 3) {
            actor = Actor {
                process: draw.below(alive) as u8,
                thread: draw.below(threads) as u8,
            };
        }
        if alive < processes && draw.chance(1, 8) {
            ops.push(fork(actor, alive));
            alive += 1;
        } else if side_by_side && draw.chance(1, 10) {
            draw.side_by_side(actor.process, threads, &mut ops);
        } else {
            let op = draw.op(actor);
            draw.remember(&op);
            ops.push(op);
        }
    }
    Program {
        scene: draw.scene,
        ops,
    }
    .normal()
}

fn fork(actor: Actor, child: u64) -> Op {
    let kind = KINDS.iter().position(|kind| kind.name == "fork");
    Op {
        kind: kind.unwrap_or_default() as u16,
        actor,
        beside: false,
        arguments: [child, 0, 0, 0, 0, 0],
    }
}

impl Draw {
    /// The next number (SplitMix64).
    fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound.max(1)
    }

    /// True `of` times out of `all`.
    pub fn chance(&mut self, of: u64, all: u64) -> bool {
        self.below(all) < of
    }

    /// One of these values, chosen by weight.
    pub fn pick(&mut self, values: &[(u32, u64)]) -> u64 {
        self.pick_from(values)
    }

    /// The same for any values.
    pub fn pick_from<T: Copy>(&mut self, values: &[(u32, T)]) -> T {
        let sum: u64 = values.iter().map(|(weight, _)| u64::from(*weight)).sum();
        let mut place = self.below(sum);
        for &(weight, value) in values {
            let weight = u64::from(weight);
            if place < weight {
                return value;
            }
            place -= weight;
        }
        values[values.len() - 1].1
    }

    /// A value that was probably not stored before.
    pub fn value(&mut self) -> u64 {
        1 + self.below(u64::from(u32::MAX))
    }

    /// The program's scene.
    pub fn scene(&self) -> Scene {
        self.scene
    }

    /// Whether no mapping may grow down.
    pub fn is_still(&self) -> bool {
        self.still
    }

    /// Whether this operation runs side by side with others.
    pub fn is_beside(&self) -> bool {
        self.slice.is_some()
    }

    /// Whether memory may be shared.
    pub fn may_share(&self) -> bool {
        !self.apart
    }

    /// Whether there are huge pages.
    pub fn is_huge(&self) -> bool {
        self.scene == Scene::Huge
    }

    /// Whether memory is locked, so that a move may leave no old place mapped.
    pub fn locks(&self) -> bool {
        self.locks
    }

    /// Whether everything may be locked, so that no mapping may be huge.
    pub fn locks_all(&self) -> bool {
        self.locks_all
    }

    /// Whether the program pages memory out.
    pub fn pages_out(&self) -> bool {
        self.pages_out
    }

    /// Whether the program has files.
    pub fn has_files(&self) -> bool {
        self.files
    }

    /// A file, or rarely none.
    pub fn file(&mut self) -> u64 {
        self.pick(&[(20, 0), (10, 1), (5, 2), (1, 7)])
    }

    /// An offset in a file, near its beginning and usually at a page.
    pub fn offset(&mut self) -> u64 {
        match self.below(12) {
            0..6 => 0,
            6..11 => self.below(10) * PAGE,
            _ => self.below(10 * PAGE),
        }
    }

    /// A page's address, near the middle more often than not.
    pub fn page(&mut self) -> u64 {
        if let Some((start, end)) = self.slice {
            return start + self.below((end - start) / PAGE) * PAGE;
        }
        if self.scene == Scene::Heap {
            let pages = self.pick(&[(2, 8), (1, HEAP_PAGES - 16)]);
            return HEAP + self.below(pages) * PAGE;
        }
        if self.scene == Scene::Huge && self.chance(3, 4) {
            // Where a huge page begins, or near it.
            let first = CENTRE - 2 * HUGE + self.pick(&[(2, 0), (4, 1), (4, 2), (1, 3)]) * HUGE;
            let by = self.pick(&[(6, 0), (2, 1), (1, 2), (1, 511), (1, 256)]);
            return first + by * PAGE;
        }
        let around = self.pick(&[(4, 8), (2, 70), (2, NEAR)]);
        let page = self.below(2 * around);
        CENTRE.wrapping_add_signed((page.cast_signed() - around.cast_signed()) * PAGE as i64)
    }

    /// An address, mostly that of a page.
    pub fn address(&mut self) -> u64 {
        if self.chance(1, 31) {
            return self.page() + 1 + self.below(PAGE - 1);
        }
        if self.chance(1, 6) {
            return self.mapped();
        }
        self.page()
    }

    /// The address of a word.
    pub fn word(&mut self) -> u64 {
        let page = if self.pages_out && self.chance(2, 3) {
            self.used_page()
        } else if self.chance(1, 3) {
            let page = self.mapped() & !(PAGE - 1);
            // Sometimes one of the next pages, or the one before.
            let by = self.pick(&[(6, 0), (2, PAGE), (1, 2 * PAGE), (1, PAGE.wrapping_neg())]);
            page.wrapping_add(by)
        } else {
            self.page()
        };
        // Memory around a sealed window and below a heap differs between systems.
        let (start, end) = match (self.scene, self.slice) {
            (_, Some(slice)) => slice,
            (Scene::Open, None) => (0, self.user_end),
            (Scene::Sealed, None) => (CENTRE - NEAR * PAGE, CENTRE + NEAR * PAGE),
            (Scene::Heap, None) => (HEAP, HEAP + HEAP_PAGES * PAGE),
            (Scene::Huge, None) => (CENTRE - 2 * HUGE, CENTRE + 2 * HUGE),
        };
        let is_home = (start..end).contains(&page);
        let page = if is_home { page } else { self.page() };
        page + WORDS[self.below(WORDS.len() as u64) as usize]
    }

    /// The address of a recent mapping, if there is one.
    pub fn mapped(&mut self) -> u64 {
        if self.count == 0 || self.slice.is_some() {
            return self.page();
        }
        let place = self.below(self.count.min(REMEMBERED) as u64);
        self.mapped[place as usize]
    }

    /// A length in bytes.
    pub fn length(&mut self) -> u64 {
        if self.scene == Scene::Huge && self.slice.is_none() && self.chance(1, 2) {
            return self.pick(&[(4, 1), (2, 2), (1, 3)]) * HUGE;
        }
        match self.below(63) {
            // Whole huge pages, which are aligned if the system chooses the address.
            62 => (1 + self.below(3)) * HUGE,
            which => self.small_length(which / 2),
        }
    }

    fn small_length(&mut self, which: u64) -> u64 {
        match which {
            0..20 => (1 + self.below(7)) * PAGE,
            20..28 => (1 + self.below(199)) * PAGE,
            28..30 => 1 + self.below(9 * PAGE),
            _ => 0,
        }
    }

    /// The length, cut so that the range stays in the program's window, if that is required.
    pub fn inside(&self, address: u64, length: u64) -> u64 {
        let end = match (self.scene, self.slice) {
            (_, Some((_, end))) => end,
            (Scene::Sealed, _) => CENTRE + NEAR * PAGE,
            _ => return length,
        };
        // Also after rounding to whole pages.
        length.min(end.saturating_sub(address))
    }

    /// An address and a length.
    pub fn range(&mut self) -> (u64, u64) {
        let address = self.address();
        let length = self.length();
        (address, self.inside(address, length))
    }

    /// The same; in the open scene sometimes much too long.
    pub fn range_or_beyond(&mut self) -> (u64, u64) {
        if self.scene == Scene::Open && !self.is_beside() && self.chance(1, 40) {
            // If everything may be locked, not long enough to reach other mappings of the process.
            let all = u32::from(!self.locks_all);
            let too_long = self.pick(&[
                (1, 0),
                (1, 1 << 30),
                (1, u64::MAX),
                (all, u64::MAX - CENTRE),
                (all, self.user_end.next_power_of_two()),
            ]);
            return (self.page(), too_long);
        }
        self.range()
    }

    /// Lengths that leave the window, or every address space.
    pub fn odd(&mut self) -> u64 {
        let end = self.user_end;
        self.pick(&[
            (1, 0),
            (1, 1),
            (1, 1 << 30),
            (1, end),
            (1, end + 1),
            (1, end - CENTRE + (NEAR + 1) * PAGE),
            (1, end - PAGE),
            (1, u64::MAX),
            (1, u64::MAX - PAGE + 1),
            (1, u64::MAX - CENTRE),
            (1, u64::MAX - CENTRE + 1),
            (1, end.next_power_of_two()),
            (1, 1 << 63),
        ])
    }

    /// Bits of `PROT_*`. Never execute alone: see the table of differences.
    pub fn prot(&mut self) -> u64 {
        self.pick(&[(12, 3), (4, 1), (2, 0), (1, 2), (2, 5), (1, 7)])
    }

    fn op(&mut self, actor: Actor) -> Op {
        let place = match self.scene {
            Scene::Huge => Scene::Open,
            other => other,
        } as usize;
        let mut sum = 0;
        for kind in KINDS {
            sum += u64::from(self.weight(kind, place));
        }
        let mut chosen = self.below(sum);
        for (number, kind) in KINDS.iter().enumerate() {
            let weight = u64::from(self.weight(kind, place));
            if chosen < weight {
                return Op {
                    kind: number as u16,
                    actor,
                    beside: self.is_beside(),
                    arguments: (kind.draw)(self),
                };
            }
            chosen -= weight;
        }
        fork(actor, u64::MAX)
    }

    fn weight(&self, kind: &Kind, place: usize) -> u32 {
        let fits = kind.stays || !self.is_beside();
        let may = match kind.name {
            "mlock" | "mlock2" | "munlock" => self.locks,
            "mlockall" | "munlockall" => self.locks_all,
            // Side by side, the result would depend on which thread uses the rest first.
            "limit" => !self.apart,
            "soft_dirty" => self.clears,
            "faults" => !self.clears && self.scene != Scene::Huge,
            "mincore" => self.scene != Scene::Huge,
            "swap" => self.pages_out,
            _ => true,
        };
        // What is paged out has to be used before and afterwards.
        let more = match kind.name {
            "load" | "store" | "madvise" if self.scene == Scene::Huge => 3,
            "load" | "store" if self.pages_out => 3,
            "madvise" if self.pages_out => 7,
            _ => 1,
        };
        if fits && may && (self.files || !kind.is_about_a_file()) {
            more * kind.weights[place]
        } else {
            0
        }
    }

    /// Operations of several threads at the same time, each in a range of its own.
    fn side_by_side(&mut self, process: u8, threads: u64, ops: &mut Vec<Op>) {
        let slices = 2 + self.below(threads - 1);
        // A thread's range is always the same, so the threads of later turns stay apart too.
        let first = CENTRE - MOST_THREADS as u64 / 2 * SLICE * PAGE;
        let turns = slices * (2 + self.below(5));
        for _ in 0..turns {
            let thread = self.below(slices);
            let start = first + thread * SLICE * PAGE;
            self.slice = Some((start, start + SLICE * PAGE));
            let actor = Actor {
                process,
                thread: thread as u8,
            };
            ops.push(self.op(actor));
        }
        self.slice = None;
    }

    /// Remembers the address of a new mapping, because later operations often use it again.
    fn remember(&mut self, op: &Op) {
        self.remember_use(op);
        let kind = op.kind();
        let addresses = kind.arguments.iter().zip(op.arguments);
        let address = addresses
            .filter(|(argument, _)| matches!(argument.meaning, Meaning::Address))
            .map(|(_, address)| address)
            .next_back();
        if let Some(address) = address
            && matches!(kind.name, "mmap" | "mremap" | "brk")
            && address != 0
        {
            self.mapped[self.count % REMEMBERED] = address & !(PAGE - 1);
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::program;
    use crate::{Program, Scene, decode, encode_all};

    #[test]
    fn a_number_is_always_the_same_program() {
        assert_eq!(program(7), program(7));
        assert_ne!(program(7), program(8));
    }

    #[test]
    fn programs_travel() {
        let programs: Vec<Program> = (0..2000).map(program).collect();
        let bytes = encode_all(&programs);
        let mut rest = bytes.as_slice();
        let mut read = Program {
            scene: Scene::Open,
            ops: Vec::new(),
        };
        for program in &programs {
            decode(&mut rest, &mut read).expect("it is whole");
            assert_eq!(&read, program);
        }
        assert!(rest.is_empty());
        assert_eq!(decode(&mut &bytes[..5], &mut read), None);
    }

    #[test]
    fn there_are_all_sorts() {
        let programs: Vec<Program> = (0..500).map(program).collect();
        let any = |test: &dyn Fn(&Program) -> bool| programs.iter().any(test);
        for scene in Scene::ALL {
            assert!(any(&|program| program.scene == scene));
        }
        assert!(any(&|program| program.ops.iter().any(|op| op.beside)));
        assert!(any(&|program| program.has_process(3)));
        assert!(any(&|program| program
            .ops
            .iter()
            .any(|op| op.actor.thread == 3)));
        assert!(programs.iter().all(|program| !program.ops.is_empty()));
    }

    /// Operations that run side by side stay in ranges of their own.
    #[test]
    fn what_is_side_by_side_is_apart() {
        for program in (0..3000).map(program) {
            for turn in program.ops.chunk_by(|a, b| a.beside && b.beside) {
                for a in turn.iter().filter(|op| op.beside) {
                    for b in turn.iter().filter(|b| b.actor != a.actor) {
                        let reach = |op: &crate::Op| {
                            let length = match op.kind().arguments.get(1) {
                                Some(second) if second.name == "length" => op.arguments[1],
                                _ => 8,
                            };
                            // An address that is not at a page is refused.
                            let start = op.arguments[0] & !0xfff;
                            (start, start.saturating_add(length))
                        };
                        let ((s, e), (t, f)) = (reach(a), reach(b));
                        assert!(e <= t || f <= s, "{a:?} {b:?}");
                    }
                }
            }
        }
    }
}
