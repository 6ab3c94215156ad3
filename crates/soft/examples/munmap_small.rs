//! What a `munmap` of a page, and of 16, costs on the soft machine: nanoseconds, one line each.
//!
//! By itself, and with what the crate has long had only: `./x bench munmap_small_vs_before` builds the very
//! same file in an older state of this repository.

use std::time::Instant;

use faultless_mm::{Policy, advice, flags};
use faultless_soft::{Options, Soft, SoftCpu};

const PAGE: u64 = 4096;
const BASE: u64 = 0x10_0000_0000;
/// Pages of a round.
const COUNT: u64 = 2000;
const ROUNDS: usize = 61;

fn main() {
    for pages in [1, 16] {
        println!("{:.1}", nanoseconds(pages));
    }
}

/// The median of rounds. The mappings have holes between them, and are beside another one.
fn nanoseconds(pages: u64) -> f64 {
    let options = Options {
        cpus: 1,
        memory: 192 << 20,
        zeroed_pool: false,
        ..Options::default()
    };
    let memory = Soft::start(options).expect("a soft machine");
    let space = SoftCpu::attend(memory, 0, || Soft::space(memory, Policy::default()));
    let space = space.expect("an address space");
    let map = |at: u64, pages: u64| {
        let how = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
        let mapped = space.mmap(at, pages * PAGE, 3, how);
        assert_eq!(mapped, Ok(at));
    };
    let mut rounds = SoftCpu::run(&space, 0, |_| {
        map(BASE - PAGE, 1);
        let count = COUNT / pages;
        let addresses = (0..count).map(|n| BASE + n * (pages + 1) * PAGE);
        let round = || {
            for at in addresses.clone() {
                map(at, pages);
                let touched = space.madvise(at, pages * PAGE, advice::POPULATE_WRITE);
                touched.expect("memory");
            }
            let start = Instant::now();
            for at in addresses.clone() {
                space.munmap(at, pages * PAGE).expect("it is mapped");
            }
            start.elapsed().as_nanos() as f64 / count as f64
        };
        // The first one warms up.
        (0..=ROUNDS).map(|_| round()).skip(1).collect::<Vec<f64>>()
    });
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}
