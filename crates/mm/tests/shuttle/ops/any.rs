//! Random operations of all kinds on the same few pages, by several threads, with files, forks, migration, swap,
//! truncation, failing allocations and changing policies.
//!
//! Nothing panics or hangs, and no invariant is broken (`World::finish`). After the last unmap no page and no
//! table is left.

use std::sync::Arc;

use crate::model::{FIXED, Model, PAGE, Processor, RW, Store, World, explore_under};
use faultless_mm::{
    AgingMode, Cpu, Errno, FrameSource, MemoryObject, Mover, Opened, PROT_READ, Pages, Policy,
    Taken, Userfault, advice, flags, remap_flags, userfault,
};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Mutex;

const ANYWHERE: u32 = flags::PRIVATE | flags::ANONYMOUS;
const PAGES: u64 = 16;
/// First pages of the range: far from shards, or near the end of the space. There the range covers parts of
/// two shards and some pages outside.
const PLACES: [u64; 2] = [0, 44];

/// A file. A lock serialises changes of its size, as a port must ensure.
struct File {
    store: MemoryObject<Model>,
    inode: Mutex<()>,
    swap: &'static Store,
}

impl File {
    const PAGES: u64 = 6;

    fn map(&self, cpu: &Processor<'_>, at: u64, length: u64, offset: u64, how: u32) {
        let opened = Opened {
            store: Ok(&self.store),
            offset: offset % 4 * PAGE,
            file: 0,
            writable: true,
        };
        let _ = cpu
            .space()
            .mmap_object(at, length, RW, how | flags::FIXED, &opened);
    }

    /// Ends the use of the swap device, and begins it again. Both may fail: other threads do the same.
    fn end_swap(&self, cpu: &Processor<'_>) -> Result<(), Errno> {
        let result = cpu.space().memory().swap_off(0, &|| Ok(()));
        let _ = self.swap.begin_again();
        result
    }

    fn shorten(&self, page: u64) {
        let _inode = self.inode.lock().unwrap();
        let _ = self.store.truncate(page % Self::PAGES * PAGE);
        let _ = self.store.truncate(Self::PAGES * PAGE);
    }

    fn punch(&self, page: u64, pages: u64) {
        let _inode = self.inode.lock().unwrap();
        let page = page % Self::PAGES;
        let _ = self.store.punch(page * PAGE..(page + pages) * PAGE);
    }
}

/// Migrates the page at an address to another frame.
fn migrate(cpu: &Processor<'_>, at: u64) {
    let (space, number) = (cpu.space(), Cpu(cpu.number()));
    let machine = space.memory().machine();
    let Some(from) = space.translate(at) else {
        return;
    };
    let Ok(to) = machine.allocate(number) else {
        return;
    };
    let moved = Mover::new(space.memory()).is_ok_and(|mut mover| mover.migrate(from, to).is_ok());
    machine.free(number, if moved { from } else { to });
}

/// Makes the page at an address idle. The frame may become another page's at any moment.
fn idle(cpu: &Processor<'_>, at: u64) {
    let memory = cpu.space().memory();
    if let Some(frame) = cpu.space().translate(at) {
        memory.set_idle(frame);
        memory.is_idle(frame);
    }
}

/// Lets the handler of a userfaultfd do something. It tracks stores, and waits for nothing, so that no access needs
/// it; what reads its events is each thread.
fn handle(cpu: &Processor<'_>, to: &Userfault<Model>, pages: Pages, from: u64) {
    let space = cpu.space();
    let mut rng = thread_rng();
    let machine = space.memory().machine();
    let one = rng.r#gen();
    let mut content = |_, frame| {
        machine.set_word(frame, 1);
        Ok(())
    };
    let _ = match rng.gen_range(0..9) {
        0 => space.register(to, pages, rng.gen_range(1..4)),
        1 => space.unregister(to, pages),
        2 | 3 => space.userfault_protect(to, pages, one),
        4 => {
            space.userfault_copy(to, pages, one, &mut content);
            Ok(())
        }
        5 => {
            space.userfault_zero(to, pages);
            Ok(())
        }
        6 => {
            space.userfault_poison(to, pages);
            Ok(())
        }
        7 => {
            space.userfault_continue(to, pages, one);
            Ok(())
        }
        _ => {
            space.userfault_move(to, pages, from, one);
            Ok(())
        }
    };
    to.wake(pages);
}

fn any(
    cpu: &Processor<'_>,
    file: &File,
    to_handler: &Userfault<Model>,
    first: u64,
    changes_policy: bool,
) {
    let space = cpu.space();
    let mut rng = thread_rng();
    let (page, pages, other) = (
        first + rng.gen_range(0..PAGES),
        rng.gen_range(1..7),
        first + rng.gen_range(0..PAGES),
    );
    let (at, length, to) = (page * PAGE, pages * PAGE, other * PAGE);
    let more = other % 8 * PAGE + PAGE;
    let (one, move_to) = (rng.r#gen(), remap_flags::MAYMOVE | remap_flags::FIXED);
    // Errors are effects of the other threads.
    let _ = match rng.gen_range(0..38) {
        36 if pages <= 2 => {
            space.memory().scan_huge();
            Ok(())
        }
        36 => {
            let what = if one {
                advice::NOHUGEPAGE
            } else {
                advice::HUGEPAGE
            };
            space.madvise(at, length, what)
        }
        // A whole huge page, and what is beside it.
        37 => {
            let (at, length) = (at & !(4 * PAGE - 1), length.next_multiple_of(4 * PAGE));
            match rng.gen_range(0..8) {
                6 | 7 => space.madvise(at, length, advice::COLLAPSE),
                0 => space.munmap(at, length),
                1 => space.mmap(at, length, RW, FIXED).map(drop),
                2 => space.mprotect(at, length, if one { RW } else { PROT_READ }),
                3 => space.madvise(at, length, advice::DONTNEED),
                4 => space.madvise(at, length, advice::COLD),
                _ => {
                    let to = to & !(4 * PAGE - 1);
                    space.mremap(at, length, length, move_to, to).map(drop)
                }
            }
        }
        32..=35 => {
            let pages = Pages::new(page, (page + pages).min(first + PAGES));
            handle(cpu, to_handler, pages, other);
            Ok(())
        }
        0..=4 => space.munmap(at, length),
        5 | 6 => space.mmap(at, length, RW, FIXED).map(drop),
        7 => space
            .mmap(at, length, RW, FIXED | flags::GROWSDOWN)
            .map(drop),
        8 => space.mprotect(at, length, if one { RW } else { PROT_READ }),
        9 => space.mremap(at, length, more, move_to, to).map(drop),
        10 => space
            .mremap(at, length, more, remap_flags::MAYMOVE, 0)
            .map(drop),
        11 => {
            let stays = remap_flags::MAYMOVE | remap_flags::DONTUNMAP;
            space.mremap(at, length, length, stays, 0).map(drop)
        }
        12 | 13 => space.fork().map(|child| {
            if one {
                let _ = child.madvise(at, length, advice::PAGEOUT);
            }
            child.destroy();
        }),
        14 => space.mmap(0, length, RW, ANYWHERE).and_then(|new| {
            let _ = cpu.store_file(new, 5);
            space.munmap(new, length)
        }),
        15 => {
            space.brk((40 + other % 8) * PAGE);
            Ok(())
        }
        16 => space.madvise(at, length, advice::DONTNEED),
        26 if pages <= 2 => file.end_swap(cpu),
        26..=28 => space.madvise(at, length, advice::PAGEOUT),
        17 if one => space.madvise(at, length, advice::GUARD_INSTALL),
        17 => space.madvise(at, length, advice::FREE),
        18 if one => {
            space.clear_soft_dirty();
            Ok(())
        }
        18 if pages % 2 == 0 => space.madvise(at, length, advice::COLD),
        18 if one => {
            space.clear_accessed(AgingMode::All);
            Ok(())
        }
        18 => {
            idle(cpu, at);
            Ok(())
        }
        19 if one => space.munlock(at, length),
        19 => space.mlock(at, length, 0),
        29 | 30 => {
            space.memory().reclaim_some();
            Ok(())
        }
        20 => {
            drop(space.pin(at, Taken::ToWrite));
            Ok(())
        }
        21 => {
            let how = if one { flags::SHARED } else { flags::PRIVATE };
            file.map(cpu, at, length, other, how);
            Ok(())
        }
        22 if one => {
            file.shorten(other);
            Ok(())
        }
        22 => {
            file.punch(other, pages);
            Ok(())
        }
        23 => {
            migrate(cpu, at);
            Ok(())
        }
        24 if one => space.madvise(at, length, advice::REMOVE),
        24 => space.madvise(at, length, advice::DONTFORK),
        25 if one => {
            space.shard_around(at);
            Ok(())
        }
        25 => {
            space.shard();
            Ok(())
        }
        _ => {
            if changes_policy {
                space.set_policy(Policy::ALL[rng.gen_range(0..Policy::ALL.len())]);
            }
            Ok(())
        }
    };
    let _ = cpu.store_file(at, 1);
    let _ = cpu.load_file(to);
}

fn several(policy: Policy, failing: u32, changes_policy: bool) {
    PLACES
        .into_iter()
        .for_each(|first| several_at(first, policy, failing, changes_policy));
}

fn several_at(first: u64, policy: Policy, failing: u32, changes_policy: bool) {
    const THREADS: u32 = 3;
    const STEPS: usize = 6;
    // Enough frames for a child of each thread.
    let world = World::with_frames(240, THREADS, 0, policy);
    if first != 0 {
        world.space().shard();
    }
    world.map(first, PAGES / 2, RW);
    (first..first + PAGES / 2).for_each(|page| world.cpu().store(page * PAGE, 1).unwrap());
    world.space().set_brk(40 * PAGE);
    let swap = world.swap(12);
    if changes_policy {
        swap.slow_down();
    }
    let memory = world.space().memory();
    let store = MemoryObject::new(memory, File::PAGES * PAGE, None, 0).unwrap();
    let inode = Mutex::new(());
    let file = Arc::new(File { store, inode, swap });
    let handler = Userfault::new(memory, 0).unwrap();
    // With SIGBUS in place of a wait, a missing page needs no handler, and a failed access is no error here.
    handler.set_features(userfault::SIGBUS | userfault::WP_UNPOPULATED);
    let handler = Arc::new(handler);
    memory.machine().fail_one_in(failing);
    let others = [1, 2].map(|number| {
        let (file, handler) = (file.clone(), handler.clone());
        world.run(number, move |cpu| {
            (0..STEPS).for_each(|_| any(cpu, &file, &handler, first, changes_policy));
        })
    });
    (0..STEPS).for_each(|_| any(&world.cpu(), &file, &handler, first, changes_policy));
    others.into_iter().for_each(|thread| thread.join().unwrap());
    memory.machine().fail_one_in(0);
    drop(file);
    world.space().close_userfault(&handler);
    drop(handler);
    // The whole range of the space can be mapped.
    let space = world.space();
    let end = space.layout().end;
    space.munmap(0, end).unwrap();
    assert!(space.mmap(0, end - PAGE, RW, ANYWHERE).is_ok());
    space.munmap(0, end).unwrap();
    let census = world.finish();
    assert_eq!((census.pages, census.tables), (0, 1), "something is left");
}

#[test]
fn any_operations() {
    explore_under(Policy::ALL, 400, |policy| several(policy, 0, false));
}

#[test]
fn where_allocations_fail() {
    explore_under(Policy::ALL, 400, |policy| several(policy, 12, false));
}

#[test]
fn while_the_policy_changes() {
    explore_under(Policy::ALL, 400, |policy| several(policy, 12, true));
}
