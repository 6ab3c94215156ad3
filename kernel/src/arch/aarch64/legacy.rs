//! System calls of this architecture alone: there are none. Linux has the generic table here.

use crate::errno::Answer;

/// The system calls that make a child, by the numbers of this architecture.
pub const FORK: Option<u32> = None;
pub const VFORK: Option<u32> = None;

/// Makes a system call of this architecture; `None`: there is none of this number.
pub fn call(_number: u32, _arguments: [u64; 6]) -> Option<Answer> {
    None
}
