//! The mappings of a program before it starts: a page of text, one of constants, one of data, an
//! empty heap behind them, and a stack that grows down from the top of user memory.

use faultless_mm::{Errno, PROT_EXEC, PROT_READ, PROT_WRITE, flags};
use faultless_soft::SoftSpace;

use super::PAGE;

/// The address of machine code, if there were any.
pub const TEXT: u64 = 0x40_0000;
/// The address of constants.
pub const CONSTANTS: u64 = TEXT + PAGE;
/// The address of variables.
pub const DATA: u64 = CONSTANTS + PAGE;
/// The start of the heap.
const HEAP: u64 = DATA + PAGE;
/// The part of the stack that is mapped at the start, as in Linux: 132 KiB.
const STACK: u64 = 33 * PAGE;
/// Bytes of arguments and environment, above the stack pointer.
const ARGUMENTS: u64 = 2 * PAGE;

/// Makes the mappings in an empty address space.
pub fn map(space: &SoftSpace) -> Result<(), Errno> {
    let fixed = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
    space.mmap(TEXT, PAGE, PROT_READ | PROT_EXEC, fixed)?;
    space.mmap(CONSTANTS, PAGE, PROT_READ, fixed)?;
    space.mmap(DATA, PAGE, PROT_READ | PROT_WRITE, fixed)?;
    space.set_brk(HEAP);
    let bottom = space.layout().end - STACK;
    space.mmap(
        bottom,
        STACK,
        PROT_READ | PROT_WRITE,
        fixed | flags::GROWSDOWN,
    )?;
    Ok(())
}

/// The stack pointer of the main thread.
pub fn stack_pointer(space: &SoftSpace) -> u64 {
    space.layout().end - ARGUMENTS
}
