//! Maps everything but a window, so that the kernel can choose addresses there only.

use super::maps;
use crate::address::Window;

/// More mappings than a process has before its program begins.
const MOST: usize = 64;
/// The lowest address that is mapped.
const LOWEST: u64 = 1 << 16;
/// Room for the main thread's stack.
const STACK: u64 = 16 << 20;

/// Maps everything below the stack but the window.
pub fn seal(window: &Window) {
    let mut used = [(u64::MAX, u64::MAX); MOST];
    used[0] = (window.start, window.end);
    let mut count = 1;
    maps::read(u64::MAX, &[], &mut |mapping| {
        if count < MOST {
            used[count] = (mapping.start, mapping.end);
            count += 1;
        }
    });
    used[..count].sort_unstable();
    let stack = used.as_ptr() as u64;
    let stack = used[..count]
        .iter()
        .find(|(start, end)| (*start..*end).contains(&stack))
        .map_or(stack, |(start, _)| *start)
        .saturating_sub(STACK);
    let mut at = LOWEST;
    for &(start, end) in &used[..count] {
        let start = start.min(stack);
        if start > at {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let flags = flags | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: only where nothing is.
            unsafe { libc::mmap(at as *mut _, (start - at) as usize, 0, flags, -1, 0) };
        }
        at = at.max(end);
    }
}
