//! What the tests have in common: a virtual machine, and vCPUs that touch its pages.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use faultless_mm::{PROT_READ, PROT_WRITE, flags};
use faultless_tdp::{Slot, SlotFlags};

use crate::command_line::{Item, Syntax};
use crate::system::{Barrier, MAX_THREADS, PAGE, Stop, Thread, Vcpu, Vm};

/// The mode of the soft machine's guests, as KVM's tests name it.
const MODE: &str = "PA-bits:ANY, VA-bits:48,  4K pages";
const MODE_NUMBER: u64 = 9;
/// Guest-physical memory ends here.
const END: u64 = 1 << 48;
/// What vCPUs store.
const VALUE: u64 = 0x0123_4567_89ab_cdef;

/// Options that all tests have.
#[derive(Clone, Copy)]
pub struct Common {
    /// `-v`.
    pub vcpus: u64,
    /// `-b`: for each vCPU.
    pub bytes: u64,
    /// `-o`: every vCPU touches all pages, and not a part of its own.
    pub overlaps: bool,
    /// `-s shmem`.
    is_shared: bool,
    /// `-p`: the guest-physical address.
    pub at: Option<u64>,
}

impl Default for Common {
    fn default() -> Self {
        Self {
            vcpus: 1,
            bytes: 1 << 30,
            overlaps: false,
            is_shared: false,
            at: None,
        }
    }
}

/// The usage of these options, without `-p`.
pub const USAGE: &str = "\t-m mode\t\tGuest mode: 9, PA-bits:ANY, VA-bits:48, 4K pages\n\
     \t-b bytes\tMemory that each vCPU touches; K, M, G allowed (1G)\n\
     \t-v vcpus\tNumber of vCPUs (1)\n\
     \t-o\t\tAll vCPUs touch the same memory, and not each a part of its own\n\
     \t-s type\t\tMemory behind the guest's: anonymous, shmem (anonymous)\n\
     \t-h\t\tPrint this\n";

impl Common {
    /// Takes an option, unless it is another one.
    pub fn take(
        &mut self,
        syntax: &Syntax,
        thread: &Thread<'_>,
        item: Item<'_>,
    ) -> Result<bool, Stop> {
        let number = |letter, text, suffix, low, high| {
            syntax.number(thread, (letter, text), suffix, (low, high))
        };
        match item {
            Item::Letter('h', _) => return Err(syntax.help(thread)),
            Item::Letter('m', text) => {
                number('m', text, false, MODE_NUMBER, MODE_NUMBER)?;
            }
            Item::Letter('v', text) => self.vcpus = number('v', text, false, 1, MAX_THREADS)?,
            Item::Letter('b', text) => self.bytes = number('b', text, true, PAGE, 1 << 46)?,
            Item::Letter('o', _) => self.overlaps = true,
            Item::Letter('p', text) => self.at = Some(number('p', text, false, 0, END - PAGE)?),
            Item::Letter('s', "anonymous") => self.is_shared = false,
            Item::Letter('s', "shmem") => self.is_shared = true,
            Item::Letter('s', text) => {
                return Err(syntax.refuse(thread, format_args!("Unknown backing src type: {text}")));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// What a vCPU does with its pages.
#[derive(Clone, Copy)]
pub struct Touch {
    /// How many of 100 accesses are stores.
    pub write_percent: u64,
    /// Whether pages are chosen at random.
    pub is_random: bool,
}

impl Touch {
    /// Stores to each page.
    pub const WRITE: Self = Self {
        write_percent: 100,
        is_random: false,
    };
    /// Loads from each page.
    pub const READ: Self = Self {
        write_percent: 0,
        is_random: false,
    };
}

/// The memory of a virtual machine.
#[derive(Clone, Copy)]
pub struct Memory {
    pub options: Common,
    /// Where it lies in the host.
    pub host: u64,
    /// Where it lies in the guest.
    at: u64,
    size: u64,
}

impl Memory {
    /// The first page of a vCPU's memory, and how many there are.
    pub fn pages_of(&self, vcpu: u64) -> (u64, u64) {
        match self.options.overlaps {
            true => (0, self.size / PAGE),
            false => {
                let pages = self.size / PAGE / self.options.vcpus;
                (vcpu * pages, pages)
            }
        }
    }

    /// Touches as many pages as a vCPU has.
    pub fn touch(
        &self,
        cpu: &Vcpu<'_>,
        vcpu: u64,
        how: Touch,
        random: &mut Random,
    ) -> Result<(), Stop> {
        let (first, pages) = self.pages_of(vcpu);
        for number in 0..pages {
            let page = match how.is_random {
                true => random.next() % pages,
                false => number,
            };
            let at = self.at + (first + page) * PAGE;
            let writes = match how.write_percent {
                0 => false,
                100 => true,
                percent => random.next() % 100 < percent,
            };
            match writes {
                true => cpu.store(at, VALUE)?,
                false => drop(cpu.load(at)?),
            }
        }
        Ok(())
    }
}

/// A virtual machine with memory in slots.
pub struct Stress<'a> {
    pub thread: &'a Thread<'a>,
    pub vm: &'a Vm,
    memory: Memory,
    slots: u32,
}

impl<'a> Stress<'a> {
    /// Gives a virtual machine its memory, in so many slots.
    pub fn new(
        thread: &'a Thread<'a>,
        vm: &'a Vm,
        options: Common,
        slots: u32,
    ) -> Result<Self, Stop> {
        thread.print(format!("Testing guest mode: {MODE}\n"));
        let bytes = options.bytes.next_multiple_of(PAGE);
        let size = options.vcpus.checked_mul(bytes);
        let size = size.filter(|size| *size <= END / 2);
        let size = size.ok_or_else(|| thread.die("Requested more guest memory than there is"))?;
        let at = options.at.unwrap_or(END - PAGE - size) & !(PAGE - 1);
        let end = at.saturating_add(size);
        thread.print(format!(
            "guest physical test memory: [0x{at:x}, 0x{end:x})\n"
        ));
        let kind = match options.is_shared {
            true => flags::SHARED,
            false => flags::PRIVATE,
        };
        let how = kind | flags::ANONYMOUS | flags::NORESERVE;
        let mapped = thread.call(|space| space.mmap(0, size, PROT_READ | PROT_WRITE, how))?;
        let memory = Memory {
            options,
            host: thread.or_die("mmap", mapped)?,
            at,
            size,
        };
        let this = Self {
            thread,
            vm,
            memory,
            slots,
        };
        this.set_flags(SlotFlags::empty())?;
        Ok(this)
    }

    pub fn memory(&self) -> Memory {
        self.memory
    }

    pub fn options(&self) -> Common {
        self.memory.options
    }

    /// The slots' numbers.
    pub fn slots(&self) -> std::ops::Range<u32> {
        0..self.slots
    }

    /// Pages of slot `number`: the last one has what is left.
    pub fn slot_pages(&self, number: u32) -> u64 {
        let (all, slots) = (self.memory.size / PAGE, u64::from(self.slots));
        all / slots
            + if number + 1 == self.slots {
                all % slots
            } else {
                0
            }
    }

    /// Sets the flags of all slots.
    pub fn set_flags(&self, flags: SlotFlags) -> Result<(), Stop> {
        let mut offset = 0;
        for number in self.slots() {
            let size = self.slot_pages(number) * PAGE;
            let slot = Slot {
                guest_address: self.memory.at + offset,
                host_address: self.memory.host + offset,
                size,
                flags,
            };
            self.vm.set_slot(self.thread, number, &slot)?;
            offset += size;
        }
        Ok(())
    }
}

/// Iterations that the main thread starts, and that all vCPUs make.
pub struct Iterations {
    start: Barrier,
    end: Barrier,
    is_over: AtomicBool,
    number: AtomicU32,
}

impl Iterations {
    /// For so many vCPUs.
    pub fn new(vcpus: u64) -> Self {
        let threads = vcpus as usize + 1;
        Self {
            start: Barrier::new(threads),
            end: Barrier::new(threads),
            is_over: AtomicBool::new(false),
            number: AtomicU32::new(0),
        }
    }

    /// Makes the vCPUs run once. Returns how long they took; `work` is done meanwhile.
    pub fn run(
        &self,
        thread: &Thread<'_>,
        work: impl FnOnce() -> Result<(), Stop>,
    ) -> Result<Duration, Stop> {
        let start = Instant::now();
        self.start.wait(thread)?;
        work()?;
        self.end.wait(thread)?;
        self.number.fetch_add(1, Ordering::Relaxed);
        Ok(start.elapsed())
    }

    /// Ends the vCPUs.
    pub fn finish(&self, thread: &Thread<'_>) -> Result<(), Stop> {
        self.is_over.store(true, Ordering::Relaxed);
        self.start.wait(thread)
    }

    /// Runs `work` in each iteration, with its number, in a vCPU's thread.
    pub fn follow(
        &self,
        thread: &Thread<'_>,
        mut work: impl FnMut(u32) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        loop {
            self.start.wait(thread)?;
            if self.is_over.load(Ordering::Relaxed) {
                return Ok(());
            }
            work(self.number.load(Ordering::Relaxed))?;
            self.end.wait(thread)?;
        }
    }
}

/// Random numbers, always the same for a seed: xorshift64*.
pub struct Random(u64);

impl Random {
    /// Begins with a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }
}

/// A time, as the tests print it.
pub fn shown(time: Duration) -> String {
    format!("{}.{:09}s", time.as_secs(), time.subsec_nanos())
}
