//! Address spaces that map the same few files, with every operation on either in parallel, and the
//! verifier over the whole machine at barriers.
//!
//! A mapping at an address shows one page of one file, by a rule, and every word says which page it was
//! written to. So a page of another file, a stale frame, or a page that was not cleared is noticed
//! wherever it is read. One more file, which is never truncated, is mapped in every space: what a CPU has
//! stored there it finds again in all of them. After a truncation the truncating CPU finds nothing behind
//! the file's end. TLB hits are checked all the while.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use faultless_mm::{
    Counter, Errno, Frame, MemoryObject, Opened, Pager, PhysicalMemory, Policy, advice, flags,
    remap_flags,
};
use faultless_soft::{Soft, SoftCpu, SoftMemory, SoftSpace, Trap};
use faultless_tests::random::{Numbers, seed};
use faultless_tests::{Budget, available, budget, machine};

const PAGE: u64 = 4096;
const RW: u32 = 3;
const CPUS: u32 = 4;
const FILES: u64 = 3;
/// Pages of a file, and of each area that maps it.
const PAGES: u64 = 40;
/// Areas of a file: in each, page `i` maps page `i` of the file.
const AREAS: u64 = 3;
/// Around a boundary of tables.
const START: u64 = (1 << 36) + (512 - 100) * PAGE;
const LEDGER: u64 = 1 << 37;
const LEDGER_PAGES: u64 = 12;
const MOST_SPACES: usize = 5;
const MOVE: u32 = remap_flags::MAYMOVE | remap_flags::FIXED;
/// The file that is read in from a device.
const DEVICE: u64 = FILES - 1;

type Family = Mutex<BTreeMap<u64, Arc<SoftSpace>>>;

/// The files. Each write or truncation holds the file's lock, like an inode's.
struct Files {
    files: Vec<Mutex<MemoryObject<Soft>>>,
    /// The same files, for mapping them.
    handles: Vec<MemoryObject<Soft>>,
    ledger: MemoryObject<Soft>,
}

/// The upper bits of every word of a page.
fn mark(file: u64, index: u64) -> u64 {
    (1 + file * PAGES + index) << 48
}

fn area(file: u64, area: u64) -> u64 {
    START + (file * AREAS + area) * PAGES * PAGE
}

/// A device that fills pages with words of their own, and fails for some.
struct Device(&'static SoftMemory);

impl Pager for Device {
    fn fill(&self, tag: u64, index: u64, frame: Frame) -> Result<(), Errno> {
        std::thread::yield_now();
        let at = self.0.machine().pointer(frame).cast::<[u64; 512]>();
        // SAFETY: the frame is the device's while it fills it.
        unsafe { at.write([mark(tag, index); 512]) };
        if index % 8 == 7 {
            return Err(Errno::EFAULT);
        }
        Ok(())
    }
}

impl Files {
    fn new(memory: &'static SoftMemory) -> Self {
        let device: &'static Device = Box::leak(Box::new(Device(memory)));
        let of = |file| {
            let backing = (file == DEVICE).then_some(device as &dyn Pager);
            MemoryObject::new(memory, PAGES * PAGE, backing, file).unwrap()
        };
        let handles: Vec<_> = (0..FILES).map(of).collect();
        Self {
            files: handles.iter().cloned().map(Mutex::new).collect(),
            handles,
            ledger: MemoryObject::new(memory, LEDGER_PAGES * PAGE, None, FILES).unwrap(),
        }
    }
}

fn opened(store: &MemoryObject<Soft>, index: u64) -> Opened<'_, Soft> {
    Opened {
        store: Ok(store),
        offset: index * PAGE,
        file: 0,
        writable: true,
    }
}

/// Asserts that a word belongs to the page that its address maps, or was never written.
fn check(file: u64, index: u64, word: u64) {
    let is_own = word >> 48 == mark(file, index) >> 48;
    assert!(
        word == 0 || is_own,
        "page {index} of file {file} has {word:#x}"
    );
}

/// Performs a random operation. Errors are legal.
fn act(cpu: &SoftCpu<'_>, numbers: &mut Numbers, files: &Files) {
    let space = cpu.space();
    let file = numbers.below(FILES);
    let first = numbers.below(PAGES);
    let most = match numbers.below(4) {
        0 => PAGES,
        _ => 4,
    };
    let count = 1 + numbers.below(most.min(PAGES - first));
    let place = |which| area(file, which) + first * PAGE;
    let which = numbers.below(AREAS);
    let (at, length) = (place(which), count * PAGE);
    let prot = [RW, RW, RW, 1, 0][numbers.below(5) as usize];
    match numbers.below(32) {
        kind @ 0..=6 => {
            let how = [flags::SHARED, flags::PRIVATE][usize::from(kind > 3)] | flags::FIXED;
            let populate = if kind == 0 { flags::POPULATE } else { 0 };
            let opened = opened(&files.handles[file as usize], first);
            let _ = space.mmap_object(at, length, prot, how | populate, &opened);
        }
        7 | 8 => drop(space.munmap(at, length)),
        9 | 10 => drop(space.mprotect(at, length, prot)),
        11 | 12 => {
            let to = place((which + 1 + numbers.below(AREAS - 1)) % AREAS);
            let dont = [0, remap_flags::DONTUNMAP][usize::from(numbers.below(4) == 0)];
            let _ = space.mremap(at, length, length, MOVE | dont, to);
        }
        13 => drop(space.madvise(at, length, advice::DONTNEED)),
        14 => drop(space.madvise(at, length, advice::POPULATE_WRITE)),
        15 => drop(space.madvise(at, length, advice::POPULATE_READ)),
        16 | 17 => cut(cpu, numbers, files, file),
        18 => space.clear_soft_dirty(),
        19 => drop(space.usage(at..at + length)),
        20 => drop(space.pagemap(at / PAGE, &mut [0; 64], true)),
        _ => {
            for _ in 0..8 {
                let index = numbers.below(PAGES);
                let word = area(file, which) + index * PAGE + numbers.below(512) * 8;
                let value = mark(file, index) | numbers.below(1 << 48);
                let _ = cpu.store(word, value);
                if let Ok(word) = cpu.load(word) {
                    check(file, index, word);
                }
            }
        }
    }
}

/// Truncates a file, makes a hole in it, or writes to it as the kernel does.
fn cut(cpu: &SoftCpu<'_>, numbers: &mut Numbers, files: &Files, file: u64) {
    let store = files.files[file as usize].lock().unwrap();
    let size = numbers.below(PAGES * PAGE) & !7;
    match numbers.below(4) {
        0 => {
            // A failed read of the page at the end does not stop the truncation.
            let _ = store.truncate(size);
            for which in 0..AREAS {
                for index in size.div_ceil(PAGE)..PAGES {
                    let seen = cpu.load(area(file, which) + index * PAGE);
                    let is_gone = matches!(
                        seen,
                        Err(Trap::Bus { .. } | Trap::Segv { .. } | Trap::OutOfMemory)
                    );
                    assert!(is_gone, "page {index} of {size} bytes stays: {seen:?}");
                }
            }
        }
        1 => {
            let _ = store.punch(size..size + numbers.below(8 * PAGE));
        }
        2 => store.extend(PAGES * PAGE),
        _ => {
            let index = size / PAGE;
            if let Ok(page) = store.page_to_write(index) {
                let pointer = store.memory().machine().pointer(page.frame());
                let word = mark(file, index) | numbers.below(1 << 48);
                // SAFETY: inside the frame, which is pinned; programs write words, too.
                unsafe {
                    pointer
                        .add((size % PAGE) as usize)
                        .cast::<std::sync::atomic::AtomicU64>()
                        .as_ref()
                }
                .store(word, std::sync::atomic::Ordering::Relaxed);
                // If the page has left the object meanwhile, its place reads as zeroes.
                store.extend_with((index + 1) * PAGE, index, &page);
            }
        }
    }
}

/// The last values that a CPU has stored in the ledger, in any space.
struct Own(Vec<u64>);

impl Own {
    fn check(&mut self, cpu: &SoftCpu<'_>, numbers: &mut Numbers) {
        let page = numbers.below(LEDGER_PAGES);
        let at = LEDGER + page * PAGE + u64::from(cpu.number()) * 8;
        let expected = &mut self.0[page as usize];
        match cpu.load(at) {
            Ok(word) => assert_eq!(word, *expected, "CPU {} at {at:#x}", cpu.number()),
            Err(trap) => assert_eq!(trap, Trap::OutOfMemory),
        }
        let value = numbers.draw();
        match cpu.store(at, value) {
            Ok(()) => *expected = value,
            Err(trap) => assert_eq!(trap, Trap::OutOfMemory),
        }
    }
}

fn visit(cpu: &SoftCpu<'_>, numbers: &mut Numbers, files: &Files, own: &mut Own, family: &Family) {
    for _ in 0..30 {
        act(cpu, numbers, files);
        own.check(cpu, numbers);
    }
    if numbers.below(2) == 0
        && family.lock().unwrap().len() < MOST_SPACES
        && let Ok(child) = cpu.space().fork()
    {
        let mut family = family.lock().unwrap();
        family.insert(child.id().id, Arc::new(child));
    }
}

fn choose(family: &Family, numbers: &mut Numbers) -> Arc<SoftSpace> {
    let family = family.lock().unwrap();
    let number = numbers.below(family.len() as u64) as usize;
    family.values().nth(number).unwrap().clone()
}

/// Sometimes removes the space, unless it is the last; the last CPU to leave it destroys it.
fn leave(
    memory: &'static SoftMemory,
    cpu: u32,
    space: Arc<SoftSpace>,
    family: &Family,
    numbers: &mut Numbers,
) {
    if numbers.below(3) == 0 {
        let mut family = family.lock().unwrap();
        if family.len() > 1 {
            family.remove(&space.id().id);
        }
    }
    if let Some(space) = Arc::into_inner(space) {
        SoftCpu::attend(memory, cpu, || space.destroy());
    }
}

fn verify(memory: &'static SoftMemory, cpu: u32, family: &Family) {
    let family = family.lock().unwrap();
    SoftCpu::attend(memory, cpu, || {
        let frames = memory.machine().allocator();
        let spaces = family.values().map(Arc::as_ref);
        let (_, accounts) = memory
            .verify_machine(frames, spaces, |_| Ok(()))
            .unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(accounts.lost(), 0, "{accounts:?}");
    });
}

/// Returns the number of forks.
fn stress(policy: Policy, megabytes: u64, budget: &Budget) -> u64 {
    let memory: &'static SoftMemory = machine(CPUS as usize, megabytes);
    let before = available(memory);
    let (first, files) = SoftCpu::attend(memory, 0, || {
        (Soft::space(memory, policy).unwrap(), Files::new(memory))
    });
    SoftCpu::run(&first, 0, |cpu| {
        let opened = opened(&files.ledger, 0);
        let how = flags::SHARED | flags::FIXED;
        let length = LEDGER_PAGES * PAGE;
        let mapped = cpu.space().mmap_object(LEDGER, length, RW, how, &opened);
        assert_eq!(mapped, Ok(LEDGER));
    });
    let family: Family = Mutex::new(BTreeMap::from([(first.id().id, Arc::new(first))]));
    let barrier = Barrier::new(CPUS as usize);
    let seed = seed();
    let goes_on = AtomicBool::new(budget.goes_on(0));
    std::thread::scope(|scope| {
        for cpu in 0..CPUS {
            let (family, barrier, files) = (&family, &barrier, &files);
            let goes_on = &goes_on;
            scope.spawn(move || {
                let mut numbers = Numbers(seed ^ (u64::from(cpu) << 56));
                let mut own = Own(vec![0; LEDGER_PAGES as usize]);
                let mut epoch = 0;
                while goes_on.load(Ordering::Relaxed) {
                    epoch += 1;
                    for _ in 0..8 {
                        let space = choose(family, &mut numbers);
                        SoftCpu::run(&space, cpu, |cpu| {
                            visit(cpu, &mut numbers, files, &mut own, family);
                        });
                        leave(memory, cpu, space, family, &mut numbers);
                    }
                    if barrier.wait().is_leader() {
                        verify(memory, cpu, family);
                        goes_on.store(budget.goes_on(epoch), Ordering::Relaxed);
                    }
                    barrier.wait();
                }
            });
        }
    });
    let family = family.into_inner().unwrap();
    SoftCpu::attend(memory, 0, || {
        for space in family.into_values() {
            Arc::into_inner(space).unwrap().destroy();
        }
        drop(files);
    });
    assert_eq!(available(memory), before, "frames were lost or found");
    memory.total(Counter::Fork)
}

#[test]
fn files_and_families() {
    for &policy in Policy::ALL {
        let forks = stress(policy, 64, &budget(12));
        assert!(forks > 12, "{forks} forks");
    }
}

#[test]
fn files_and_families_without_memory() {
    for &policy in Policy::ALL {
        stress(policy, 1, &budget(12));
    }
}
