//! The thread that reclaims memory in the background (Linux: `kswapd`), before programs have to.

use core::sync::atomic::Ordering;

use faultless_frames::Watermarks;
use faultless_mm::PAGE_SIZE;

use crate::arch::TrapFrame;
use crate::errno::Errno;
use crate::memory::machine;
use crate::sched;
use crate::sched::thread::Thread;
use crate::sched::wait::{self, Interruptible};

/// The thread's number, which is no process's.
const NUMBER: u32 = 1 << 30;

/// Starts the thread. From now on memory is reclaimed, and a part of it is kept for that.
///
/// # Errors
/// As `Thread::new`.
pub fn begin() -> Result<(), Errno> {
    let thread = Thread::new(NUMBER, false, run, &TrapFrame::default())?;
    sched::enqueue(thread);
    let frames = machine::sizes().0 / PAGE_SIZE;
    machine::frames().set_watermarks(Watermarks::of(frames));
    Ok(())
}

/// Sleeps outside the core, so that the machine can be stopped meanwhile.
fn run(_: &'static Thread) {
    let shortage = machine::frames().shortage();
    let key = core::ptr::from_ref(shortage) as u64;
    loop {
        let is_enough = || Ok(shortage.load(Ordering::SeqCst) == 0);
        let _ = wait::sleep(key, u32::MAX, None, Interruptible::No, is_enough);
        machine::memory().reclaim_in_background();
        machine::frames().end_shortage();
    }
}
