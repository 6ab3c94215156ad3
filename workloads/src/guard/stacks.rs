//! The growth of stacks, and its limits.

use faultless_mm::Access::{Read, Write};
use faultless_mm::SegvCode::MapErr;
use faultless_mm::flags;

use super::check::{Failure, allowed, ensure, faults};
use super::kernel_access::clock_to;
use super::pages::{ANONYMOUS, NONE, RW, map_over, map_pages, protect, unmap};
use crate::system::{Fault, PAGE, Stop, Thread, image};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

fn stack_pointer(t: &Thread<'_>) -> Result<u64, Stop> {
    t.call(image::stack_pointer)
}

/// Writes `depth` KiB below `top`, downwards, like nested function calls, and checks
/// each frame on the way back. Returns whether they kept their contents.
fn recurse(t: &Thread<'_>, top: u64, depth: u64) -> Result<Result<bool, Fault>, Stop> {
    let frame = |level: u64| top - level * KIB;
    let word = |level: u64| level.wrapping_mul(0x0101_0101_0101_0101);
    for level in 1..=depth {
        for at in (0..KIB).step_by(64) {
            if let Err(fault) = t.attempt(|cpu| cpu.store(frame(level) + at, word(level)))? {
                return Ok(Err(fault));
            }
        }
    }
    for level in (1..=depth).rev() {
        for at in (0..KIB).step_by(64) {
            match t.attempt(|cpu| cpu.load(frame(level) + at))? {
                Ok(seen) if seen == word(level) => {}
                Ok(_) => return Ok(Ok(false)),
                Err(fault) => return Ok(Err(fault)),
            }
        }
    }
    Ok(Ok(true))
}

// The next three checks reach deeper one after the other, into unused stack.

pub fn below_stack_pointer(t: &Thread<'_>) -> Result<(), Failure> {
    let p = stack_pointer(t)? - MIB;
    allowed(t, Write, p)?;
    allowed(t, Read, p + MIB / 2)
}

pub fn kernel_grows_stack(t: &Thread<'_>) -> Result<(), Failure> {
    let p = stack_pointer(t)? - MIB * 3 / 2;
    let result = clock_to(t, p)?;
    ensure!(result.is_ok(), "{result:?}");
    Ok(())
}

pub fn deep_recursion(t: &Thread<'_>) -> Result<(), Failure> {
    let result = recurse(t, stack_pointer(t)?, 3 * 1024)?;
    ensure!(
        result == Ok(true),
        "the stack lost its contents, or {result:?}"
    );
    Ok(())
}

pub fn stack_limit(t: &Thread<'_>) -> Result<(), Failure> {
    let limit = t.call(|space| space.layout().stack_limit)?;
    faults(t, MapErr, Write, stack_pointer(t)? - limit - MIB / 2)
}

pub fn thread_stack_overflow(t: &Thread<'_>) -> Result<(), Failure> {
    const SIZE: u64 = 256 * KIB;
    let stack = map_pages(t, 1 + SIZE / PAGE, RW)?;
    protect(t, stack, 1, NONE)?;
    let Err(fault) = recurse(t, stack + PAGE + SIZE, 1 << 20)? else {
        return Err(Failure::Explained("no fault".to_owned()));
    };
    let at = fault.address;
    let in_guard = (stack..stack + PAGE).contains(&at);
    ensure!(
        in_guard,
        "si_addr {at:#x} is not in the guard page at {stack:#x}"
    );
    unmap(t, stack, 1 + SIZE / PAGE)?;
    Ok(())
}

pub fn grows_down(t: &Thread<'_>) -> Result<(), Failure> {
    const SPAN: u64 = 4 * MIB / PAGE; // pages; the guard gap is 1 MiB
    let low = map_pages(t, SPAN, NONE)?;
    let top = low + (SPAN - 4) * PAGE;
    unmap(t, low, SPAN)?;
    let grows_down = ANONYMOUS | flags::FIXED | flags::GROWSDOWN;
    let result = t.call(|space| space.mmap(top, 4 * PAGE, RW, grows_down))?;
    ensure!(result == Ok(top), "{result:?}");
    allowed(t, Write, top)?;
    allowed(t, Write, top - PAGE)?;
    allowed(t, Write, top - 20 * PAGE)?;
    allowed(t, Read, top - 3 * PAGE)?;
    // With a mapping below, growth stops 1 MiB (256 pages of 4 KiB) above it.
    let result = map_over(t, low, 1, RW)?;
    ensure!(result == Ok(low), "{result:?}");
    allowed(t, Write, low + 258 * PAGE)?;
    faults(t, MapErr, Write, low + 200 * PAGE)?;
    unmap(t, low, SPAN)?;
    Ok(())
}
