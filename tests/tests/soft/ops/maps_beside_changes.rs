//! `/proc/self/maps` read beside writers: its lines ascend, whatever the writers do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use faultless_mm::{Policy, flags};
use faultless_soft::SoftCpu;
use faultless_tests::space;

const PAGE: u64 = 4096;
const AT: u64 = 1 << 36;
/// Pages of a whole slot, two levels above the lowest.
const PAGES: u64 = 4096;
const RW: u32 = 3;
const TIME: Duration = Duration::from_millis(1500);

/// Splits and nodes of both levels appear, disappear and replace each other while a reader walks
/// them.
#[test]
fn lines_go_forward() {
    let (_, space) = space(2, 64, Policy::default());
    SoftCpu::run(&space, 0, |_| {
        let fixed = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
        assert_eq!(space.mmap(AT, PAGES * PAGE, RW, fixed), Ok(AT));
    });
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            SoftCpu::run(&space, 0, |_| {
                for round in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    // Two protections, which take a split; a third, near or far, which takes a node, or two
                    // and splits; then one again, which takes none.
                    let first = (1 + round * 5 % (PAGES - 1)) * PAGE;
                    let second = (1 + round * (1 + round % 2 * 37) % (PAGES - 1)) * PAGE;
                    let (first, second) = (first.min(second), first.max(second));
                    // An allocation may fail for a moment, while the reader's section delays reclamation.
                    let _ = space.mprotect(AT, first, 1);
                    let _ = space.mprotect(AT + first, PAGES * PAGE - first, 5);
                    let _ = space.mprotect(AT + second, PAGES * PAGE - second, 4);
                    let _ = space.mprotect(AT, PAGES * PAGE, RW);
                }
            });
        });
        threads.spawn(|| {
            SoftCpu::run(&space, 1, |_| {
                let start = Instant::now();
                let mut from = AT;
                while start.elapsed() < TIME {
                    if let Some(line) = space.maps_after(from) {
                        let forward = from <= line.start && line.start < line.end;
                        if !forward {
                            stop.store(true, Ordering::Relaxed);
                        }
                        assert!(
                            forward,
                            "behind {from:#x}: {:#x}..{:#x}",
                            line.start, line.end
                        );
                    }
                    from = AT + (from + 7 * PAGE) % (PAGES * PAGE);
                }
                stop.store(true, Ordering::Relaxed);
            });
        });
    });
}
