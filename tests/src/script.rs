//! Scripts of memory operations, for any implementation of [`Memory`].
//!
//! The same script runs on the host's kernel (in a child process) and on the
//! soft machine; each step gives a line of text, and the lines are compared.

use std::fmt;

use faultless_mm::flags;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// `MAP_FIXED` and `MAP_FIXED_NOREPLACE`: the script fixes the address.
const FIXED: u32 = flags::FIXED | flags::FIXED_NOREPLACE;

/// The line of an operation that was left out.
pub const LEFT_OUT: &str = "left-out";

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Op {
    Mmap {
        address: u64,
        length: u64,
        prot: u32,
        flags: u32,
    },
    Munmap {
        address: u64,
        length: u64,
    },
    Mprotect {
        address: u64,
        length: u64,
        prot: u32,
    },
    Madvise {
        address: u64,
        length: u64,
        advice: i32,
    },
    Mremap {
        address: u64,
        old_length: u64,
        length: u64,
        flags: u32,
        to: u64,
    },
    Mincore {
        address: u64,
        length: u64,
    },
    Mseal {
        address: u64,
        length: u64,
    },
    Brk {
        address: u64,
    },
    Mlock {
        address: u64,
        length: u64,
        flags: u32,
    },
    Munlock {
        address: u64,
        length: u64,
    },
    Mlockall {
        flags: u32,
    },
    Munlockall,
    Limit(Limit),
    /// Queries the totals.
    VmStats,
    Load {
        address: u64,
    },
    MemoryObject {
        address: u64,
        value: u64,
    },
    /// Does nothing, because the other side could not perform the operation.
    LeftOut,
    /// The next `ops` operations are the child's, the following ones the
    /// parent's. The child runs first, or with `later` after the parent has ended.
    Fork {
        ops: u64,
        later: bool,
    },
}

/// A limit, in pages; `u64::MAX` for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Of the address space, above the present size (`RLIMIT_AS`).
    Mapped(u64),
    /// Of data, above the present size (`RLIMIT_DATA`).
    Data(u64),
    /// Of a stack (`RLIMIT_STACK`).
    Stack(u64),
    /// Of locked memory (`RLIMIT_MEMLOCK`).
    Locked(u64),
}

impl Op {
    /// The same operation, `base` further up.
    pub fn moved(self, base: u64) -> Op {
        let mut op = self;
        match &mut op {
            Op::Mmap { address, .. }
            | Op::Munmap { address, .. }
            | Op::Mprotect { address, .. }
            | Op::Madvise { address, .. }
            | Op::Mincore { address, .. }
            | Op::Mseal { address, .. }
            | Op::Mlock { address, .. }
            | Op::Munlock { address, .. }
            | Op::Brk { address }
            | Op::Load { address }
            | Op::MemoryObject { address, .. } => *address = address.wrapping_add(base),
            Op::Mremap { address, to, .. } => {
                *address = address.wrapping_add(base);
                *to = to.wrapping_add(base);
            }
            Op::Mlockall { .. } | Op::Munlockall | Op::Limit(_) | Op::VmStats => {}
            Op::Fork { .. } | Op::LeftOut => {}
        }
        op
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Op::Mmap {
                address,
                length,
                prot,
                flags,
            } => write!(f, "mmap {address:x} {length:x} {prot:x} {flags:x}"),
            Op::Munmap { address, length } => write!(f, "munmap {address:x} {length:x}"),
            Op::Mprotect {
                address,
                length,
                prot,
            } => write!(f, "mprotect {address:x} {length:x} {prot:x}"),
            Op::Madvise {
                address,
                length,
                advice,
            } => write!(f, "madvise {address:x} {length:x} {advice:x}"),
            Op::Mremap {
                address,
                old_length,
                length,
                flags,
                to,
            } => write!(
                f,
                "mremap {address:x} {old_length:x} {length:x} {flags:x} {to:x}"
            ),
            Op::Mincore { address, length } => write!(f, "mincore {address:x} {length:x}"),
            Op::Mseal { address, length } => write!(f, "mseal {address:x} {length:x}"),
            Op::Brk { address } => write!(f, "brk {address:x}"),
            Op::Mlock {
                address,
                length,
                flags,
            } => write!(f, "mlock {address:x} {length:x} {flags:x}"),
            Op::Munlock { address, length } => write!(f, "munlock {address:x} {length:x}"),
            Op::Mlockall { flags } => write!(f, "mlockall {flags:x}"),
            Op::Munlockall => f.write_str("munlockall"),
            Op::Limit(Limit::Mapped(pages)) => write!(f, "limit-mapped {pages:x}"),
            Op::Limit(Limit::Data(pages)) => write!(f, "limit-data {pages:x}"),
            Op::Limit(Limit::Stack(pages)) => write!(f, "limit-stack {pages:x}"),
            Op::Limit(Limit::Locked(pages)) => write!(f, "limit-locked {pages:x}"),
            Op::VmStats => f.write_str("totals"),
            Op::Load { address } => write!(f, "load {address:x}"),
            Op::MemoryObject { address, value } => write!(f, "store {address:x} {value:x}"),
            Op::LeftOut => f.write_str(LEFT_OUT),
            Op::Fork { ops, later } => write!(f, "fork {ops:x} {:x}", u8::from(later)),
        }
    }
}

impl Op {
    /// Parses the output of `Display`.
    pub fn parse(line: &str) -> Option<Op> {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        let mut numbers = [0; 5];
        for (number, word) in numbers.iter_mut().zip(words) {
            *number = u64::from_str_radix(word, 16).ok()?;
        }
        let [address, length, third, fourth, fifth] = numbers;
        Some(match name {
            "mmap" => Op::Mmap {
                address,
                length,
                prot: third as u32,
                flags: fourth as u32,
            },
            "munmap" => Op::Munmap { address, length },
            "mprotect" => Op::Mprotect {
                address,
                length,
                prot: third as u32,
            },
            "madvise" => Op::Madvise {
                address,
                length,
                advice: third as i32,
            },
            "mremap" => Op::Mremap {
                address,
                old_length: length,
                length: third,
                flags: fourth as u32,
                to: fifth,
            },
            "mincore" => Op::Mincore { address, length },
            "mseal" => Op::Mseal { address, length },
            "brk" => Op::Brk { address },
            "mlock" => Op::Mlock {
                address,
                length,
                flags: third as u32,
            },
            "munlock" => Op::Munlock { address, length },
            "mlockall" => Op::Mlockall {
                flags: address as u32,
            },
            "munlockall" => Op::Munlockall,
            "limit-mapped" => Op::Limit(Limit::Mapped(address)),
            "limit-data" => Op::Limit(Limit::Data(address)),
            "limit-stack" => Op::Limit(Limit::Stack(address)),
            "limit-locked" => Op::Limit(Limit::Locked(address)),
            "totals" => Op::VmStats,
            "load" => Op::Load { address },
            "store" => Op::MemoryObject {
                address,
                value: length,
            },
            LEFT_OUT => Op::LeftOut,
            "fork" => Op::Fork {
                ops: address,
                later: length != 0,
            },
            _ => return None,
        })
    }
}

/// The signal of a failed access: `si_code` and `si_addr`.
pub type Signal = (i32, u64);

/// The arguments of `mremap`.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Remap {
    pub old: u64,
    pub old_length: u64,
    pub length: u64,
    pub flags: u32,
    pub to: u64,
}

/// The memory that scripts run on. Errors are Linux's error numbers.
#[allow(missing_docs, clippy::missing_errors_doc)]
pub trait Memory {
    fn mmap(&mut self, address: u64, length: u64, prot: u32, flags: u32) -> Result<u64, i32>;
    fn munmap(&mut self, address: u64, length: u64) -> Result<(), i32>;
    /// `None`: left out, as for `mremap`.
    fn mprotect(&mut self, address: u64, length: u64, prot: u32) -> Option<Result<(), i32>>;
    fn madvise(&mut self, address: u64, length: u64, advice: i32) -> Result<(), i32>;
    /// `None`: left out, because the kernel has mappings here that others would have merged.
    fn mremap(&mut self, call: Remap) -> Option<Result<u64, i32>>;
    /// A byte for each page.
    fn mincore(&mut self, address: u64, length: u64) -> Result<Vec<u8>, i32>;
    fn mseal(&mut self, address: u64, length: u64) -> Result<(), i32>;
    fn brk(&mut self, address: u64) -> u64;
    fn mlock(&mut self, address: u64, length: u64, flags: u32) -> Result<(), i32>;
    fn munlock(&mut self, address: u64, length: u64) -> Result<(), i32>;
    fn mlockall(&mut self, flags: u32) -> Result<(), i32>;
    fn munlockall(&mut self);
    fn limit(&mut self, limit: Limit);
    /// The numbers of pages: mapped, data, stacks, locked.
    fn totals(&mut self) -> [u64; 4];
    fn load(&mut self, address: u64) -> Result<u64, Signal>;
    fn store(&mut self, address: u64, value: u64) -> Result<(), Signal>;
    /// Shows every mapping: start, end, protection.
    fn maps(&mut self, show: &mut dyn FnMut(u64, u64, u32));
    /// Makes a child, and runs its script and the rest of the parent's, to their ends.
    fn fork(&mut self, family: &Family<'_>, answer: &mut dyn FnMut(String));
}

/// The scripts to run after a fork.
pub struct Family<'a> {
    /// The addresses that the script uses.
    pub window: &'a Window,
    /// The child's operations.
    pub child: &'a [Op],
    /// The remaining operations of the parent.
    pub parent: &'a [Op],
    /// Whether the parent runs to its end before the child starts.
    pub later: bool,
}

impl Family<'_> {
    /// Runs both in their order; `child` runs the child.
    pub fn run<T>(
        &self,
        on: &mut T,
        answer: &mut dyn FnMut(String),
        child: impl FnOnce(&mut T, &mut dyn FnMut(String)),
    ) where
        T: Memory,
    {
        if self.later {
            run(on, self.window, self.parent, answer);
            child(on, answer);
        } else {
            child(on, answer);
            run(on, self.window, self.parent, answer);
        }
    }
}

/// The addresses that a script uses.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The start of the range in which mappings are compared.
    pub start: u64,
    /// Its end.
    pub end: u64,
    /// The start of the range in which every page's content is compared.
    pub first: u64,
    /// Its end.
    pub last: u64,
}

impl Window {
    /// Parses the output of `Display`.
    pub fn parse(line: &str) -> Option<Window> {
        let mut numbers = line
            .split_whitespace()
            .filter_map(|word| u64::from_str_radix(word, 16).ok());
        Some(Window {
            start: numbers.next()?,
            end: numbers.next()?,
            first: numbers.next()?,
            last: numbers.next()?,
        })
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Window {
            start,
            end,
            first,
            last,
        } = self;
        write!(f, "{start:x} {end:x} {first:x} {last:x}")
    }
}

/// The words of each page that stores write and that are compared.
pub const WORDS: [u64; 3] = [0, 64, PAGE - 8];

/// Runs a script and passes each step's line to `answer`; then the totals, the mappings, each page's words,
/// and the mappings once more (loads may have grown stacks). Each process of a script that forks ends
/// like this.
pub fn run(on: &mut impl Memory, window: &Window, script: &[Op], answer: &mut dyn FnMut(String)) {
    // A process has more mappings than the script's.
    let base = on.totals();
    for (number, op) in script.iter().enumerate() {
        if let Op::Fork { ops, later } = *op {
            let rest = &script[number + 1..];
            let (child, parent) = rest.split_at(rest.len().min(ops as usize));
            let family = Family {
                window,
                child,
                parent,
                later,
            };
            return on.fork(&family, answer);
        }
        answer(step(on, window, base, op));
    }
    answer(totals(on.totals(), base));
    answer(maps(on, window));
    let mut page = window.first;
    while page < window.last {
        let words = WORDS.map(|word| match on.load(page + word) {
            Ok(value) => format!("{value:x}"),
            Err((code, address)) => format!("!{code}@{address:x}"),
        });
        if words.iter().any(|word| word != "0") {
            answer(format!("{page:x}: {}", words.join(" ")));
        }
        page += PAGE;
    }
    answer(maps(on, window));
}

fn step(on: &mut impl Memory, window: &Window, base: [u64; 4], op: &Op) -> String {
    match *op {
        Op::Mmap {
            address,
            length,
            prot,
            flags,
        } => match on.mmap(address, length, prot, flags) {
            Ok(at) if (window.start..window.end).contains(&at) || flags & FIXED != 0 => {
                format!("{at:x}")
            }
            // The address depends on the other mappings of the process.
            Ok(at) => {
                let undone = on.munmap(at, length);
                format!("elsewhere {undone:?}")
            }
            Err(errno) => format!("errno {errno}"),
        },
        Op::Munmap { address, length } => done(on.munmap(address, length)),
        Op::Mprotect {
            address,
            length,
            prot,
        } => match on.mprotect(address, length, prot) {
            None => LEFT_OUT.into(),
            Some(result) => done(result),
        },
        Op::Madvise {
            address,
            length,
            advice,
        } => done(on.madvise(address, length, advice)),
        Op::Mremap {
            address: old,
            old_length,
            length,
            flags,
            to,
        } => {
            let call = Remap {
                old,
                old_length,
                length,
                flags,
                to,
            };
            match on.mremap(call) {
                None => LEFT_OUT.into(),
                Some(Ok(at)) if (window.start..window.end).contains(&at) => format!("{at:x}"),
                Some(Ok(at)) => {
                    let undone = on.munmap(at, length);
                    format!("elsewhere {undone:?}")
                }
                Some(Err(errno)) => format!("errno {errno}"),
            }
        }
        Op::LeftOut => LEFT_OUT.into(),
        Op::Mincore { address, length } => match on.mincore(address, length) {
            Ok(there) => there.iter().map(|byte| char::from(b'0' + byte)).collect(),
            Err(errno) => format!("errno {errno}"),
        },
        Op::Mseal { address, length } => done(on.mseal(address, length)),
        Op::Brk { address } => format!("{:x}", on.brk(address)),
        Op::Mlock {
            address,
            length,
            flags,
        } => done(on.mlock(address, length, flags)),
        Op::Munlock { address, length } => done(on.munlock(address, length)),
        Op::Mlockall { flags } => done(on.mlockall(flags)),
        Op::Munlockall => {
            on.munlockall();
            "unlocked".into()
        }
        Op::Limit(limit) => {
            on.limit(limit);
            "limited".into()
        }
        Op::VmStats => totals(on.totals(), base),
        Op::Load { address } => match on.load(address) {
            Ok(value) => format!("{value:x}"),
            Err(signal) => trap(signal),
        },
        Op::MemoryObject { address, value } => match on.store(address, value) {
            Ok(()) => "stored".into(),
            Err(signal) => trap(signal),
        },
        // Not a step: it divides the script.
        Op::Fork { .. } => String::new(),
    }
}

fn totals(now: [u64; 4], base: [u64; 4]) -> String {
    let more = |i: usize| now[i].wrapping_sub(base[i]).cast_signed();
    format!("totals {} {} {} {}", more(0), more(1), more(2), more(3))
}

fn done(result: Result<(), i32>) -> String {
    match result {
        Ok(()) => "ok".into(),
        Err(errno) => format!("errno {errno}"),
    }
}

fn trap((code, address): Signal) -> String {
    format!("signal {code} at {address:x}")
}

/// The mappings in the window, cut to it. Neighbours with equal protection are
/// joined, because Linux does not merge mappings with different reverse maps.
fn maps(on: &mut impl Memory, window: &Window) -> String {
    let mut lines: Vec<(u64, u64, u32)> = Vec::new();
    on.maps(&mut |start, end, prot| {
        let (start, end) = (start.max(window.start), end.min(window.end));
        if start >= end {
            return;
        }
        match lines.last_mut() {
            Some(last) if last.1 == start && last.2 == prot => last.1 = end,
            _ => lines.push((start, end, prot)),
        }
    });
    let lines = lines.iter().map(|(s, e, p)| format!(" {s:x}-{e:x}={p}"));
    format!("maps{}", lines.collect::<String>())
}
