//! A disk of the host (`virtio-blk`), as a block device of pages.
//!
//! * The disk's registers are found and mapped at boot ([`find`]).
//! * Its queue has room for a few requests ([`REQUESTS`]). A thread that finds none free waits for one.
//! * No interrupt is used. Each waiting thread looks whether any request has ended, and wakes the threads whose
//!   requests have. Between two looks it spins for a moment, and then sleeps: the disk answers in tens of
//!   microseconds. Nothing is held meanwhile.
//! * Requests lie on the heap, because the disk reads and writes them by their physical addresses.

use alloc::boxed::Box;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use faultless_mm::PAGE_SIZE;
use faultless_swap::{DeviceError, Page, SwapDevice, SwapRead, SwapWrite};
use virtio_drivers::device::blk::{BlkReq, BlkResp, SECTOR_SIZE, VirtIOBlk};
use virtio_drivers::transport::DeviceType;
use virtio_drivers::transport::pci::bus::{Command, ConfigurationAccess, DeviceFunction, PciRoot};
use virtio_drivers::transport::pci::{PciTransport, virtio_device_type};
use virtio_drivers::{BufferDirection, Hal, PhysAddr};

use crate::arch::{self, paging, pci, percpu, time};
use crate::memory::boot_frames::BootFrames;
use crate::memory::machine::{self, Purpose};
use crate::sched::stop_machine;
use crate::sched::wait::{self, Interruptible};
use crate::sync::{Once, SpinLock};

/// Requests under way at a time: each takes three of the queue's 16 descriptors.
const REQUESTS: usize = 5;
/// Looks at the queue before the thread sleeps between two.
const SPINS: u32 = 500;
/// The first and the longest sleep between two looks, in nanoseconds.
const SLEEPS: (u64, u64) = (10_000, 500_000);
const SECTORS: u64 = PAGE_SIZE / SECTOR_SIZE as u64;

/// Where the registers of the disk are: their physical address, size, and place in the device window.
struct Registers {
    function: DeviceFunction,
    physical: u64,
    size: u64,
    at: u64,
}

static REGISTERS: Once<Registers> = Once::new();

/// Finds the disk, if the machine has one, and maps its registers; boot only.
pub fn find(frames: &mut BootFrames) {
    let mut root = PciRoot::new(Configuration);
    let is_disk = |(_, info): &_| virtio_device_type(info) == Some(DeviceType::Block);
    let Some((function, _)) = root.enumerate_bus(0).find(is_disk) else {
        return;
    };
    let Ok(bars) = root.bars(function) else {
        return;
    };
    // The only large one has all the registers; the other has the vectors of interrupts.
    let memory = bars
        .iter()
        .flatten()
        .filter_map(|bar| bar.memory_address_size());
    let largest = memory.max_by_key(|&(_, size)| size);
    let Some((physical, size)) = largest.filter(|&(physical, _)| physical != 0) else {
        return;
    };
    let pages = size.div_ceil(PAGE_SIZE);
    let mut at = 0;
    for page in 0..pages {
        // One after the other.
        let mapped = paging::map_device(physical + page * PAGE_SIZE, frames) as u64;
        at = if page == 0 { mapped } else { at };
    }
    root.set_command(function, Command::MEMORY_SPACE | Command::BUS_MASTER);
    REGISTERS.set(Registers {
        function,
        physical,
        size,
        at,
    });
}

/// Configuration of devices.
struct Configuration;

impl ConfigurationAccess for Configuration {
    fn read_word(&self, at: DeviceFunction, register: u8) -> u32 {
        pci::read_function(at.device.into(), at.function.into(), register.into())
    }

    fn write_word(&mut self, at: DeviceFunction, register: u8, value: u32) {
        pci::write_function(at.device.into(), at.function.into(), register.into(), value);
    }

    unsafe fn unsafe_clone(&self) -> Self {
        Self
    }
}

/// Memory that is shared with the disk.
struct Shared;

fn order_of(pages: usize) -> u32 {
    pages.next_power_of_two().trailing_zeros()
}

/// The physical address of memory in the direct map.
fn physical(pointer: NonNull<u8>) -> u64 {
    pointer.as_ptr() as u64 - paging::DIRECT_MAP
}

// SAFETY: blocks of frames are this caller's alone until they are freed, and lie in the direct map; so do the heap
// and the frames of pages, which are all that is shared. The registers are mapped for good.
unsafe impl Hal for Shared {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let block = machine::allocate_block(order_of(pages), Purpose::Disk).unwrap_or(0);
        let start = paging::physical_to_virtual(block);
        // Address 0 says that there is none.
        if block != 0 {
            // SAFETY: the block is this caller's.
            unsafe { start.write_bytes(0, pages * PAGE_SIZE as usize) };
        }
        // SAFETY: the direct map is not at address 0.
        (block, unsafe { NonNull::new_unchecked(start) })
    }

    unsafe fn dma_dealloc(block: PhysAddr, _: NonNull<u8>, pages: usize) -> i32 {
        machine::free_block(block, order_of(pages));
        0
    }

    unsafe fn mmio_phys_to_virt(physical: PhysAddr, size: usize) -> NonNull<u8> {
        let registers = REGISTERS.get();
        let offset = physical.wrapping_sub(registers.physical);
        assert!(
            offset <= registers.size && size as u64 <= registers.size - offset,
            "registers of the disk lie elsewhere"
        );
        // SAFETY: the device window is not at address 0.
        unsafe { NonNull::new_unchecked((registers.at + offset) as *mut u8) }
    }

    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        physical(buffer.cast())
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}

/// The state of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Free,
    /// The disk has it, under this token of the queue.
    UnderWay(u16),
    /// Whether it succeeded.
    Ended(bool),
}

/// A request to read or write one page.
struct Request {
    phase: Phase,
    is_write: bool,
    page: NonNull<Page>,
    head: BlkReq,
    response: BlkResp,
}

struct Queue {
    disk: VirtIOBlk<Shared, PciTransport>,
    requests: Box<[Request; REQUESTS]>,
}

// SAFETY: the pages of requests under way are the disk's, and their callers wait.
unsafe impl Send for Queue {}

/// The disk.
pub struct VirtioDisk {
    queue: SpinLock<Queue>,
    /// Goes up when requests have ended. Threads that wait for one park on it.
    ended: AtomicU32,
    pages: u64,
}

fn result(is_ok: bool) -> Result<(), DeviceError> {
    match is_ok {
        true => Ok(()),
        false => Err(DeviceError::Failed),
    }
}

impl VirtioDisk {
    /// Takes the disk into use.
    ///
    /// # Errors
    /// A line that says what is wrong.
    pub fn open() -> Result<Self, &'static str> {
        let registers = REGISTERS.try_get().ok_or("the machine has no disk")?;
        let mut root = PciRoot::new(Configuration);
        let transport = PciTransport::new::<Shared, _>(&mut root, registers.function)
            .map_err(|_| "the registers of the disk are not as expected")?;
        let disk = VirtIOBlk::new(transport).map_err(|_| "the disk cannot be used")?;
        if disk.readonly() {
            return Err("the disk is read-only");
        }
        let requests = Box::new(core::array::from_fn(|_| Request {
            phase: Phase::Free,
            is_write: false,
            page: NonNull::dangling(),
            head: BlkReq::default(),
            response: BlkResp::default(),
        }));
        let pages = disk.capacity() / SECTORS;
        Ok(Self {
            queue: SpinLock::new(Queue { disk, requests }),
            ended: AtomicU32::new(0),
            pages,
        })
    }

    /// The whole disk's pages, of which the first has the header.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Reads the header.
    ///
    /// # Errors
    /// The disk failed, or there is no memory.
    pub fn header(&self) -> Result<Box<Page>, DeviceError> {
        let mut page = Box::new([0; PAGE_SIZE as usize]);
        self.transfer(0, NonNull::from(&mut *page), false)?;
        Ok(page)
    }

    /// Reads or writes a page of the disk, which nothing else uses meanwhile, and waits for it.
    fn transfer(&self, at: u64, page: NonNull<Page>, is_write: bool) -> Result<(), DeviceError> {
        let request = self.wait_until(|queue| queue.begin(at, page, is_write));
        self.end(request)
    }

    /// Reads or writes pages of slots, several at a time: each with what the caller calls it, its slot and the page.
    fn transfer_all(
        &self,
        pages: &mut dyn Iterator<Item = (usize, u64, NonNull<Page>)>,
        is_write: bool,
        done: &mut dyn FnMut(usize, Result<(), DeviceError>),
    ) {
        let mut own = [const { None }; REQUESTS];
        for (number, slot, page) in pages {
            if slot >= self.slots() {
                done(number, Err(DeviceError::Failed));
                continue;
            }
            // A request of this caller's that has ended is freed before the next one is waited for: another caller
            // may be waiting for it, too.
            while let Step::Ended(number, is_ok) = self.wait_until(|queue| {
                let ended = own.iter_mut().find_map(|own| queue.end_of(own));
                let mut begin = |queue: &mut Queue| {
                    let begun = queue.begin(slot + 1, page, is_write)?;
                    let free = own.iter_mut().find(|own| own.is_none())?;
                    *free = Some((begun, number));
                    Some(Step::Begun)
                };
                ended.or_else(|| begin(queue))
            }) {
                done(number, result(is_ok));
            }
        }
        for (request, number) in own.into_iter().flatten() {
            done(number, self.end(request));
        }
    }

    /// Waits for a request, and frees it.
    fn end(&self, request: usize) -> Result<(), DeviceError> {
        result(self.wait_until(|queue| queue.end(request)))
    }

    /// Calls `act` until it returns something, and waits for the disk in between.
    fn wait_until<R>(&self, mut act: impl FnMut(&mut Queue) -> Option<R>) -> R {
        let (mut turn, mut sleep) = (0, SLEEPS.0);
        loop {
            let seen = self.ended.load(Ordering::SeqCst);
            let (result, has_ended) = {
                let mut queue = self.queue.lock();
                let has_ended = queue.look();
                (act(&mut queue), has_ended)
            };
            if has_ended {
                self.tell();
            }
            if let Some(result) = result {
                return result;
            }
            turn += 1;
            if turn < SPINS || percpu::current().is_none_or(|thread| thread.id() == 0) {
                arch::relax();
                continue;
            }
            let _inside = stop_machine::go_on_inside();
            let key = core::ptr::from_ref(&self.ended) as u64;
            let until = time::now() + sleep;
            let _ = wait::sleep(key, u32::MAX, Some(until), Interruptible::No, || {
                Ok(self.ended.load(Ordering::SeqCst) == seen)
            });
            sleep = (sleep * 2).min(SLEEPS.1);
        }
    }

    /// Wakes the threads that wait for requests.
    fn tell(&self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
        let key = core::ptr::from_ref(&self.ended) as u64;
        wait::wake_address(key, u32::MAX, u32::MAX);
    }
}

/// What a caller with several requests has done.
enum Step {
    /// Begun another one.
    Begun,
    /// Freed the one that it calls by this number; whether it succeeded.
    Ended(usize, bool),
}

impl Queue {
    /// Frees a caller's request, if it has ended.
    fn end_of(&mut self, own: &mut Option<(usize, usize)>) -> Option<Step> {
        let (request, number) = (*own)?;
        let is_ok = self.end(request)?;
        *own = None;
        Some(Step::Ended(number, is_ok))
    }

    /// Begins a request; `None` if none is free.
    fn begin(&mut self, at: u64, page: NonNull<Page>, is_write: bool) -> Option<usize> {
        let is_free = |request: &Request| request.phase == Phase::Free;
        let number = self.requests.iter().position(is_free)?;
        let request = &mut self.requests[number];
        let sector = (at * SECTORS) as usize;
        (request.page, request.is_write) = (page, is_write);
        // SAFETY: the request and its page stay where they are, and only the disk uses them until `look` has seen
        // the request's end.
        let begun = unsafe {
            let Request { head, response, .. } = request;
            match is_write {
                true => {
                    let page = request.page.as_ref();
                    self.disk.write_blocks_nb(sector, head, page, response)
                }
                false => {
                    let page = request.page.as_mut();
                    self.disk.read_blocks_nb(sector, head, page, response)
                }
            }
        };
        // A request is not free without its descriptors.
        request.phase = begun.map_or(Phase::Ended(false), Phase::UnderWay);
        Some(number)
    }

    /// Finds requests that have ended. Returns whether there are any.
    fn look(&mut self) -> bool {
        let mut has_ended = false;
        while let Some(token) = self.disk.peek_used() {
            let is_meant = |request: &&mut Request| request.phase == Phase::UnderWay(token);
            let Some(request) = self.requests.iter_mut().find(is_meant) else {
                // The disk answers what was not asked.
                return has_ended;
            };
            // SAFETY: the same as in `begin`.
            let result = unsafe {
                let Request { head, response, .. } = request;
                match request.is_write {
                    true => {
                        let page = request.page.as_ref();
                        self.disk.complete_write_blocks(token, head, page, response)
                    }
                    false => {
                        let page = request.page.as_mut();
                        self.disk.complete_read_blocks(token, head, page, response)
                    }
                }
            };
            request.phase = Phase::Ended(result.is_ok());
            has_ended = true;
        }
        has_ended
    }

    /// Frees a request that has ended. Returns whether it succeeded.
    fn end(&mut self, number: usize) -> Option<bool> {
        let request = &mut self.requests[number];
        let Phase::Ended(is_ok) = request.phase else {
            return None;
        };
        request.phase = Phase::Free;
        Some(is_ok)
    }
}

impl SwapDevice for VirtioDisk {
    fn slots(&self) -> u64 {
        self.pages.saturating_sub(1)
    }

    fn write(&self, slot: u64, page: &Page) -> Result<(), DeviceError> {
        if slot >= self.slots() {
            return Err(DeviceError::Failed);
        }
        self.transfer(slot + 1, NonNull::from(page), true)
    }

    fn write_all(
        &self,
        writes: &mut dyn Iterator<Item = SwapWrite<'_>>,
        done: &mut dyn FnMut(usize, Result<(), DeviceError>),
    ) {
        let page_of = |write: SwapWrite<'_>| (write.number, write.slot, NonNull::from(write.page));
        self.transfer_all(&mut writes.map(page_of), true, done);
    }

    fn read_all(
        &self,
        reads: &mut dyn Iterator<Item = SwapRead<'_>>,
        done: &mut dyn FnMut(usize, Result<(), DeviceError>),
    ) {
        let page_of = |read: SwapRead<'_>| (read.number, read.slot, NonNull::from(read.page));
        self.transfer_all(&mut reads.map(page_of), false, done);
    }

    fn read(&self, slot: u64, page: &mut Page) -> Result<(), DeviceError> {
        if slot >= self.slots() {
            return Err(DeviceError::Failed);
        }
        self.transfer(slot + 1, NonNull::from(page), false)
    }

    fn discard(&self, _slot: u64) {
        // What the slot holds is not read before it is written again.
    }

    fn is_fast(&self) -> bool {
        false
    }
}
