//! What guests learn about their CPU: the table that is offered (`KVM_GET_SUPPORTED_CPUID`), a vCPU's own, and
//! the answer to `cpuid`.
//!
//! What the host has is offered unless the kernel would have to switch state for it: not virtualisation, keys,
//! performance counters, or control of speculation.

use alloc::vec::Vec;

use super::state::State;
use super::uapi::MAX_CPUID;
use crate::arch::uaccess;
use crate::errno::{Answer, E2BIG, ENOMEM, Errno};

/// `struct kvm_cpuid_entry2`: function, index, flags, EAX to EDX, and padding.
pub type Entry = [u32; 10];
const FUNCTION: usize = 0;
const INDEX: usize = 1;
const FLAGS: usize = 2;
const ANSWER: usize = 3;
/// The index matters.
const INDEXED: u32 = 1;
const BYTES: u64 = 40;

fn push(to: &mut Vec<Entry>, entry: Entry) -> Result<(), Errno> {
    to.try_reserve(1).map_err(|_| ENOMEM)?;
    to.push(entry);
    Ok(())
}

fn host(function: u32, index: u32) -> [u32; 4] {
    let leaf = raw_cpuid::cpuid!(function, index);
    [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx]
}

const fn without(bits: &[u32]) -> u32 {
    let mut mask = u32::MAX;
    let mut at = 0;
    while at < bits.len() {
        mask &= !(1 << bits[at]);
        at += 1;
    }
    mask
}

/// XSAVE components that guests can have.
const COMPONENTS: u32 = 0xe7;

/// The answer that is offered for a function; `None` if there is none.
fn offered(function: u32, index: u32) -> Option<[u32; 4]> {
    let [a, b, c, d] = host(function, index);
    Some(match (function, index) {
        (0, _) => [a.min(0xd), b, c, d],
        (1, _) => {
            // No debug store, MONITOR, VMX, SMX, speed step, thermal monitor, context id, task priority,
            // performance capabilities, direct cache access, x2APIC, deadline timer; there is a hypervisor.
            let c = c & without(&[2, 3, 4, 5, 6, 7, 8, 10, 14, 15, 18, 21, 24, 27]) | 1 << 31;
            [a, b & 0xff00, c, d & without(&[18, 21, 22, 28, 29, 30, 31])]
        }
        (7, 0) => {
            // No SGX, bounds, processor trace, cache control; no keys, RDPID, user wait.
            // The time is adjusted by the kernel.
            let b = b & without(&[2, 4, 11, 12, 14, 15, 25]) | 1 << 1;
            let c = c & without(&[3, 4, 5, 7, 13, 22, 23, 24, 27, 28, 29, 30, 31]);
            [0, b, c, d & (1 << 2 | 1 << 3 | 1 << 4 | 1 << 8)]
        }
        (0xd, 0) => [a & COMPONENTS, 576, xsave_size(a & COMPONENTS), 0],
        (0xd, 1) => [a & 0b111, 0, 0, 0],
        (0xd, 2..=63) if COMPONENTS >> index.min(31) & 1 != 0 && index < 32 && a != 0 => {
            [a, b, c & 2, 0]
        }
        (0xd, _) => return None,
        (2 | 3 | 5 | 6 | 8 | 9 | 0xa | 0xb | 0xc, _) => [0; 4],
        (4, _) if a & 31 == 0 => return None,
        (4, _) => [a, b, c, d],
        // "KVMKVMKVM".
        (0x4000_0000, _) => [0x4000_0001, 0x4b4d_564b, 0x564b_4d56, 0x4d],
        // Ports need no delay.
        (0x4000_0001, _) => [1 << 1, 0, 0, 0],
        (0x8000_0000, _) => [a.min(0x8000_0008), b, c, d],
        (0x8000_0001, _) => {
            let c = c & without(&[2, 3, 9, 10, 12, 13, 15, 19, 22, 23, 24, 26, 27, 28, 29]);
            [a, b, c, d & without(&[27])]
        }
        (0x8000_0007, _) => [0, 0, 0, d & 1 << 8],
        (0x8000_0008, _) => {
            let physical = a & 0xff;
            [physical | a & 0xff00 | physical << 16, b & 0b101, 0, 0]
        }
        _ => [a, b, c, d],
    })
}

/// The bytes of state of these XSAVE components.
fn xsave_size(components: u32) -> u32 {
    (2..32)
        .filter(|number| components >> number & 1 != 0)
        .map(|number| {
            let [size, at, ..] = host(0xd, number);
            size + at
        })
        .fold(576, u32::max)
}

/// The table that is offered.
///
/// # Errors
/// `ENOMEM`.
pub fn supported() -> Result<Vec<Entry>, Errno> {
    let mut table = Vec::new();
    let last = host(0, 0)[0].min(0xd);
    let extended = host(0x8000_0000, 0)[0].min(0x8000_0008);
    let functions = (0..=last)
        .chain(0x8000_0000..=extended)
        .chain(0x4000_0000..=0x4000_0001);
    for function in functions {
        let (indices, flags) = match function {
            4 => (0..8, INDEXED),
            7 => (0..1, INDEXED),
            0xd => (0..32, INDEXED),
            _ => (0..1, 0),
        };
        for index in indices {
            let Some([a, b, c, d]) = offered(function, index) else {
                continue;
            };
            push(&mut table, [function, index, flags, a, b, c, d, 0, 0, 0])?;
        }
    }
    Ok(table)
}

/// Copies a table to a program's `struct kvm_cpuid2`.
///
/// # Errors
/// `E2BIG` if it has no room; `EFAULT`.
pub fn write(at: u64, table: &[Entry]) -> Answer {
    let room: u32 = uaccess::read(at)?;
    if (room as usize) < table.len() {
        return Err(E2BIG);
    }
    for (number, entry) in (0..).zip(table) {
        uaccess::write(at.wrapping_add(8 + number * BYTES), entry)?;
    }
    uaccess::write(at, &(table.len() as u32))?;
    Ok(0)
}

/// Reads a program's table.
///
/// # Errors
/// `E2BIG`, `EFAULT`, `ENOMEM`.
pub fn read(at: u64) -> Result<Vec<Entry>, Errno> {
    let count: u32 = uaccess::read(at)?;
    if count > MAX_CPUID {
        return Err(E2BIG);
    }
    let mut table = Vec::new();
    for number in 0..u64::from(count) {
        push(
            &mut table,
            uaccess::read(at.wrapping_add(8 + number * BYTES))?,
        )?;
    }
    Ok(table)
}

/// Whether two tables say the same.
pub fn are_same(one: &[Entry], other: &[Entry]) -> bool {
    const PADDING: usize = ANSWER + 4;
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|(one, other)| one[..PADDING] == other[..PADDING])
}

fn find(table: &[Entry], function: u32, index: u32) -> Option<[u32; 4]> {
    let fits = |entry: &&Entry| {
        entry[FUNCTION] == function && (entry[FLAGS] & INDEXED == 0 || entry[INDEX] == index)
    };
    let entry = table.iter().find(fits)?;
    Some([
        entry[ANSWER],
        entry[ANSWER + 1],
        entry[ANSWER + 2],
        entry[ANSWER + 3],
    ])
}

/// Bits of physical addresses; 36 is what a CPU has that does not say.
pub fn address_bits(table: &[Entry]) -> u32 {
    find(table, 0x8000_0008, 0).map_or(36, |[a, ..]| (a & 0xff).clamp(32, 52))
}

/// The bits of CR4 that a vCPU must not set: unknown ones, and those of features that the CPU or the table does
/// not have. A vCPU without a table has what is offered.
pub fn forbidden_cr4(table: &[Entry]) -> u64 {
    const ALWAYS: u64 = 0x7ff;
    let bits = |[_, basic, extended]: [[u32; 4]; 3]| {
        let bit =
            |word: u32, number: u32, to: u64| if word >> number & 1 != 0 { 1 << to } else { 0 };
        bit(basic[2], 26, 18)
            | bit(basic[2], 17, 17)
            | bit(extended[1], 7, 20)
            | bit(extended[1], 20, 21)
            | bit(extended[1], 0, 16)
            | bit(extended[2], 2, 11)
            | bit(extended[2], 16, 12)
    };
    let host = [1, 1, 7].map(|function| offered(function, 0).unwrap_or_default());
    let mut allowed: u64 = ALWAYS | bits(host);
    if !table.is_empty() {
        let own = [1, 1, 7].map(|function| find(table, function, 0).unwrap_or_default());
        allowed &= ALWAYS | bits(own);
    }
    !allowed
}

/// Answers a guest's `cpuid`.
pub fn emulate(state: &mut State) {
    use super::state::register::{RAX, RBX, RCX, RDX};
    let (function, index) = (state.register(RAX) as u32, state.register(RCX) as u32);
    let [a, mut b, mut c, d] = find(&state.cpuid, function, index).unwrap_or_default();
    const OSXSAVE: u64 = 1 << 18;
    match (function, index) {
        (1, _) if state.save().cr4 & OSXSAVE != 0 && c >> 26 & 1 != 0 => c |= 1 << 27,
        (0xd, 0) if c != 0 => b = xsave_size(state.xcr0 as u32),
        _ => {}
    }
    for (register, value) in [(RAX, a), (RBX, b), (RCX, c), (RDX, d)] {
        state.set_register(register, u64::from(value));
    }
    state.skip(2);
}

/// The XSAVE components that a vCPU's table has.
pub fn components(table: &[Entry]) -> u64 {
    find(table, 0xd, 0).map_or(0, |[a, _, _, d]| u64::from(a) | u64::from(d) << 32)
}
