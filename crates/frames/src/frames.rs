//! The default frame source: a buddy allocator behind per-CPU caches.

use faultless_paging::{BITS, ENTRIES, Frame, PAGE_SIZE, PhysicalMemory};
use faultless_sync::atomic::{AtomicU32, AtomicU64, Ordering, amortised};
use faultless_sync::{Cpu, Padded, SpinLock, Wait, prefetch_to_write};

use crate::audit::{FrameAudit, Misuse, Use};
use crate::buddy::{Buddy, MAX_ORDER, Range};
use crate::cache::{BATCH, CAPACITY, FrameCache};
use crate::descriptor::{Descriptor, Flags};
use crate::pool::HugePool;
use crate::source::{FrameSource, NoMemory, Reserve};
use crate::watermarks::{Levels, Watermarks};

/// The default frame allocator.
///
/// `P` is the machine: it translates frames to pointers and implements waiting.
pub struct Frames<P> {
    machine: P,
    base: u64,
    descriptors: &'static [Descriptor],
    caches: &'static [FrameCache],
    buddy: Padded<SpinLock<Buddy>>,
    zero: Frame,
    /// The first frame of the shared huge zero page; 0 before it is made. Written once.
    huge_zero: AtomicU64,
    pool: bool,
    huge_pool: Padded<HugePool>,
    watermarks: Levels,
    /// Whether frames are reclaimed in the background. Written when that changes.
    shortage: Padded<AtomicU32>,
}

/// There are enough frames.
const ENOUGH: u32 = 0;
/// Frames are to be reclaimed in the background.
const SHORT: u32 = 1;
/// No more can be reclaimed.
const GIVEN_UP: u32 = 2;

/// The order of the block of a huge page.
const HUGE_ORDER: u32 = BITS;
const _: () = assert!(HUGE_ORDER <= MAX_ORDER);

/// Cache lines of the next frame to prefetch.
const FETCHED: usize = 4;

/// The number of free frames, by location.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Frames in the free lists.
    pub free: u64,
    /// Frames in CPUs' caches.
    pub cached: u64,
    /// Zeroed frames in CPUs' caches.
    pub zeroed: u64,
}

impl Census {
    /// Returns the number of frames that can be allocated.
    pub fn available(&self) -> u64 {
        self.free + self.cached + self.zeroed
    }
}

impl<P: PhysicalMemory + Wait> Frames<P> {
    /// Creates an allocator of frames `base..base + descriptors.len()`, of which `usable` are free. One of
    /// these becomes the shared zero page. `caches` has a cache for each CPU.
    ///
    /// # Errors
    /// [`NoMemory`] when `usable` holds no frame.
    pub fn new(
        machine: P,
        base: Frame,
        descriptors: &'static [Descriptor],
        caches: &'static [FrameCache],
        usable: impl Iterator<Item = core::ops::Range<u64>>,
    ) -> Result<Self, NoMemory> {
        let range = Range {
            base: base.0,
            descriptors,
        };
        let mut buddy = Buddy::new();
        for part in usable {
            donate(&mut buddy, range, part);
        }
        let zero = buddy.allocate(range, 0).ok_or(NoMemory)?;
        machine.zero(zero);
        Ok(Self {
            machine,
            base: base.0,
            descriptors,
            caches,
            buddy: Padded(SpinLock::new(buddy)),
            zero,
            huge_zero: AtomicU64::new(0),
            pool: true,
            huge_pool: Padded(HugePool::new()),
            watermarks: Levels::default(),
            shortage: Padded(AtomicU32::new(ENOUGH)),
        })
    }

    /// Sets from now on when frames are reclaimed, and how many are kept for that.
    pub fn set_watermarks(&self, watermarks: Watermarks) {
        self.watermarks.set(watermarks);
    }

    /// Returns the word on which a thread that reclaims in the background parks while it is not 1. An allocation sets
    /// it to 1 and wakes the thread when less than [`Watermarks::low`] frames are free.
    pub fn shortage(&self) -> &AtomicU32 {
        &self.shortage
    }

    /// Ends what the word of [`Frames::shortage`] has begun. If there are not enough frames, because no more can be
    /// reclaimed, the thread is not woken again before there are: it would only take from programs what they need next.
    pub fn end_shortage(&self, is_enough: bool) {
        let next = if is_enough { ENOUGH } else { GIVEN_UP };
        self.shortage.store(next, Ordering::Relaxed);
    }

    /// Compares the number of free frames with the watermark.
    fn note_free(&self, free: u64) {
        let is_low = free < self.watermarks.get().low;
        match self.shortage.load(Ordering::Relaxed) {
            ENOUGH if is_low => {
                self.shortage.store(SHORT, Ordering::Relaxed);
                self.machine.wake(&self.shortage, u32::MAX);
            }
            GIVEN_UP if !is_low => self.shortage.store(ENOUGH, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Disables the zeroed pool: every zeroed frame is zeroed when it is allocated.
    pub fn without_pool(mut self) -> Self {
        self.pool = false;
        self
    }

    fn range(&self) -> Range<'static> {
        Range {
            base: self.base,
            descriptors: self.descriptors,
        }
    }

    /// Allocates a block of `2^order` frames, aligned to its size.
    ///
    /// # Errors
    /// [`NoMemory`] when no such block is free.
    pub fn allocate_block(&self, order: u32) -> Result<Frame, NoMemory> {
        if order > MAX_ORDER {
            return Err(NoMemory);
        }
        self.buddy
            .lock(&self.machine)
            .allocate(self.range(), order)
            .ok_or(NoMemory)
    }

    /// Frees a block of [`Frames::allocate_block`].
    pub fn free_block(&self, frame: Frame, order: u32) {
        self.buddy
            .lock(&self.machine)
            .release(self.range(), frame, order);
    }

    /// Adds a zeroed frame to the pool of an idle CPU. Returns whether it did.
    pub fn fill_zeroed(&self, cpu: Cpu) -> bool {
        let cache = &self.caches[cpu.index()];
        if !self.pool || cache.zeroed.len() == CAPACITY {
            return false;
        }
        // Leave the last free frames to other allocations.
        if self.buddy.lock(&self.machine).free() < 4 * CAPACITY as u64 {
            return false;
        }
        let Ok(frame) = self.allocate(cpu) else {
            return false;
        };
        self.machine.zero(frame);
        cache.zeroed.push(frame);
        true
    }

    #[cold]
    fn refill(&self, cache: &FrameCache) -> Option<Frame> {
        amortised(|| {
            let mut buddy = self.buddy.lock(&self.machine);
            let mut room =
                (BATCH as u64).min(buddy.free().saturating_sub(self.watermarks.get().min));
            while room != 0 {
                let Some((first, order)) = buddy.allocate_some(self.range(), room) else {
                    break;
                };
                // Pushed in reverse, so that frames are popped in the order of addresses, which prefetchers
                // expect.
                for frame in (first.0..first.0 + (1 << order)).rev() {
                    cache.any.push(Frame(frame));
                }
                room -= 1 << order;
            }
            let free = buddy.free();
            drop(buddy);
            self.note_free(free);
        });
        // Zeroed frames are the last reserve.
        cache.any.pop().or_else(|| cache.zeroed.pop())
    }

    #[cold]
    fn spill(&self, cache: &FrameCache) {
        amortised(|| {
            let mut buddy = self.buddy.lock(&self.machine);
            for _ in 0..BATCH {
                let Some(frame) = cache.any.pop() else { break };
                buddy.release(self.range(), frame, 0);
            }
        });
    }

    /// Prefetches what the next allocation touches first: the frame's descriptor, its translation, its first
    /// lines. A claim waits for all stores of the page zeroed before it, so a fault cannot overlap with the
    /// misses of the next one. Zeroing this page can.
    #[inline]
    fn fetch(&self, next: Frame) {
        prefetch_to_write(self.descriptor(next));
        let start = self.machine.pointer(next).as_ptr();
        for line in 0..FETCHED {
            prefetch_to_write(start.wrapping_add(64 * line));
        }
    }

    /// Returns this CPU's cached frames to the free lists, where they merge into blocks.
    pub fn drain(&self, cpu: Cpu) {
        let cache = &self.caches[cpu.index()];
        let mut buddy = self.buddy.lock(&self.machine);
        while let Some(frame) = cache.any.pop().or_else(|| cache.zeroed.pop()) {
            buddy.release(self.range(), frame, 0);
        }
    }

    /// Gives a frame back to the pool of huge pages, if it is one of that. Returns whether it is.
    #[cold]
    #[inline(never)]
    fn give_to_pool(&self, cpu: Cpu, frame: Frame) -> bool {
        let is_pooled = self.huge_pool.has(self, frame);
        if is_pooled {
            let cpu_and_frame = (cpu, frame);
            self.huge_pool
                .give_back(self, &self.machine, cpu_and_frame, 1);
        }
        is_pooled
    }

    /// Counts the free frames, by location.
    pub fn census(&self) -> Census {
        let free = self.buddy.lock(&self.machine).free();
        let sum = |f: fn(&FrameCache) -> usize| self.caches.iter().map(f).sum::<usize>() as u64;
        Census {
            free,
            cached: sum(|c| c.any.len()),
            zeroed: sum(|c| c.zeroed.len()),
        }
    }

    /// Calls `visit` with every frame that can be allocated. Nothing else runs meanwhile.
    pub fn for_each_available(&self, visit: &mut dyn FnMut(Frame)) {
        let each = &mut |first: Frame, order: u32| {
            (first.0..first.0 + (1 << order)).for_each(|f| visit(Frame(f)));
            Ok::<(), core::convert::Infallible>(())
        };
        let _ = self.buddy.lock(&self.machine).for_each(self.range(), each);
        for cache in self.caches {
            cache
                .any
                .iter()
                .chain(cache.zeroed.iter())
                .for_each(&mut *visit);
        }
    }

    /// Starts a frame audit, in which free frames and the shared zero page are already entered. Nothing else
    /// runs meanwhile.
    ///
    /// # Errors
    /// If a frame is free twice, or should be zeroed and is not.
    pub fn audit(&self) -> Result<FrameAudit, Misuse> {
        let audit = FrameAudit::new(self.range());
        let free = &mut |first: Frame, order: u32| {
            (first.0..first.0 + (1 << order)).try_for_each(|f| audit.enter(Frame(f), Use::FREE))
        };
        self.buddy
            .lock(&self.machine)
            .for_each(self.range(), free)?;
        for cache in self.caches {
            for frame in cache.any.iter() {
                audit.enter(frame, Use::CACHED)?;
            }
            for frame in cache.zeroed.iter() {
                audit.enter(frame, Use::ZEROED)?;
                self.check_zeroed(frame, "a frame of the zeroed pool is not zeroed")?;
            }
        }
        self.huge_pool
            .for_each_free(self, &self.machine, &mut |frame| {
                audit.enter(frame, Use::FREE)
            })?;
        audit.enter(self.zero, Use::ZERO_PAGE)?;
        self.check_zeroed(self.zero, "the shared zero page was written to")?;
        let huge = self
            .huge_zero_frame()
            .map(|first| first.0..first.0 + ENTRIES as u64);
        for frame in huge.into_iter().flatten().map(Frame) {
            audit.enter(frame, Use::ZERO_PAGE)?;
            self.check_zeroed(frame, "the shared huge zero page was written to")?;
        }
        Ok(audit)
    }

    fn check_zeroed(&self, frame: Frame, rule: &'static str) -> Result<(), Misuse> {
        let words = self.machine.pointer(frame).cast::<u64>().as_ptr();
        // SAFETY: the frame is memory of a page's size, and nothing else runs.
        let is_zeroed = (0..PAGE_SIZE as usize / 8).all(|at| unsafe { words.add(at).read() } == 0);
        if is_zeroed {
            Ok(())
        } else {
            Err(Misuse { rule, frame })
        }
    }
}

/// Frees every frame of `part`, in blocks as large as alignment allows.
fn donate(buddy: &mut Buddy, range: Range<'static>, part: core::ops::Range<u64>) {
    let mut at = part.start.max(range.base);
    let end = part.end.min(range.base + range.descriptors.len() as u64);
    for frame in at..end {
        range.descriptors[(frame - range.base) as usize].set_flags(Flags::NONE);
    }
    while at < end {
        let order = at.trailing_zeros().min((end - at).ilog2()).min(MAX_ORDER);
        buddy.release(range, Frame(at), order);
        at += 1 << order;
    }
}

impl<P: PhysicalMemory + Wait> FrameSource for Frames<P> {
    #[inline]
    fn allocate(&self, cpu: Cpu) -> Result<Frame, NoMemory> {
        let cache = &self.caches[cpu.index()];
        match cache.any.pop() {
            Some(frame) => Ok(frame),
            None => self.refill(cache).ok_or(NoMemory),
        }
    }

    #[inline]
    fn allocate_zeroed(&self, cpu: Cpu) -> Result<Frame, NoMemory> {
        let cache = &self.caches[cpu.index()];
        if let Some(frame) = cache.zeroed.pop() {
            return Ok(frame);
        }
        let frame = self.allocate(cpu)?;
        if let Some(next) = cache.any.top() {
            self.fetch(next);
        }
        self.machine.zero(frame);
        Ok(frame)
    }

    fn allocate_reserved(&self, cpu: Cpu, reserve: Reserve) -> Result<Frame, NoMemory> {
        self.allocate(cpu).or_else(|_| {
            let kept = match reserve {
                Reserve::Kernel => self.watermarks.get().min / 2,
                Reserve::Reclaim => 0,
            };
            let mut buddy = self.buddy.lock(&self.machine);
            let is_there = buddy.free() > kept;
            let taken = is_there.then(|| buddy.allocate(self.range(), 0));
            taken.flatten().ok_or(NoMemory)
        })
    }

    fn free_reserved(&self, cpu: Cpu, frame: Frame) {
        let is_pooled = self.huge_pool.has(self, frame);
        let mut buddy = self.buddy.lock(&self.machine);
        if is_pooled || buddy.free() >= self.watermarks.get().min {
            drop(buddy);
            return self.free(cpu, frame);
        }
        self.machine.forget(frame);
        buddy.release(self.range(), frame, 0);
    }

    fn missing(&self) -> u64 {
        let free = self.buddy.lock(&self.machine).free();
        self.watermarks.get().high.saturating_sub(free)
    }

    #[inline]
    fn free(&self, cpu: Cpu, frame: Frame) {
        debug_assert!(frame != self.zero);
        self.machine.forget(frame);
        if self.huge_pool.has_any() && self.give_to_pool(cpu, frame) {
            return;
        }
        let cache = &self.caches[cpu.index()];
        if cache.any.len() == CAPACITY {
            self.spill(cache);
        }
        cache.any.push(frame);
    }

    fn allocate_huge(&self, _cpu: Cpu) -> Result<Frame, NoMemory> {
        amortised(|| {
            let mut buddy = self.buddy.lock(&self.machine);
            let kept = self.watermarks.get().min;
            let is_there = buddy.free() >= kept + ENTRIES as u64;
            let block = is_there.then(|| buddy.allocate(self.range(), HUGE_ORDER));
            let free = buddy.free();
            drop(buddy);
            self.note_free(free);
            block.flatten().ok_or(NoMemory)
        })
    }

    fn free_huge(&self, cpu: Cpu, first: Frame) {
        for frame in first.0..first.0 + ENTRIES as u64 {
            self.machine.forget(Frame(frame));
        }
        if self.huge_pool.has(self, first) {
            let frames = ENTRIES as u32;
            return self
                .huge_pool
                .give_back(self, &self.machine, (cpu, first), frames);
        }
        amortised(|| {
            let mut buddy = self.buddy.lock(&self.machine);
            buddy.release(self.range(), first, HUGE_ORDER);
        });
    }

    fn huge_pool(&self) -> Option<&HugePool> {
        Some(&self.huge_pool)
    }

    fn give_up_kept(&self, cpu: Cpu) {
        self.drain(cpu);
    }

    fn huge_zero_frame(&self) -> Option<Frame> {
        // Acquire: pairs with the release of the CPU that made it.
        let first = self.huge_zero.load(Ordering::Acquire);
        (first != 0).then_some(Frame(first))
    }

    #[cold]
    fn make_huge_zero(&self, cpu: Cpu) -> Result<Frame, NoMemory> {
        if let Some(first) = self.huge_zero_frame() {
            return Ok(first);
        }
        let new = self.allocate_huge(cpu)?;
        for frame in new.0..new.0 + ENTRIES as u64 {
            self.machine.zero(Frame(frame));
            self.machine.poll();
        }
        let made = self
            .huge_zero
            .compare_exchange(0, new.0, Ordering::AcqRel, Ordering::Acquire);
        made.map(|_| new).or_else(|first| {
            self.free_huge(cpu, new);
            Ok(Frame(first))
        })
    }

    #[inline]
    fn descriptor(&self, frame: Frame) -> &Descriptor {
        &self.descriptors[(frame.0 - self.base) as usize]
    }

    #[inline]
    fn descriptors_of_huge(&self, first: Frame) -> &[Descriptor] {
        let start = (first.0 - self.base) as usize;
        &self.descriptors[start..start + ENTRIES]
    }

    fn extent(&self) -> core::ops::Range<u64> {
        self.base..self.base + self.descriptors.len() as u64
    }

    #[inline]
    fn zero_frame(&self) -> Frame {
        self.zero
    }
}
