//! The thread that makes huge pages in the background (Linux: `khugepaged`). It begins with the first setting that gives
//! mappings huge pages.

use core::sync::atomic::{AtomicBool, Ordering};

use faultless_mm::{HugeMode, HugeScan, HugeScanSetting};

use crate::arch::{TrapFrame, time};
use crate::errno::Errno;
use crate::memory::machine::memory;
use crate::sched;
use crate::sched::thread::Thread;
use crate::sched::wait::{self, Interruptible};

/// The thread's number, which is no process's.
const NUMBER: u32 = (1 << 30) + 1;

/// Whether the thread has begun.
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// Sets which mappings get huge pages, and starts the thread if any do.
///
/// # Errors
/// As `Thread::new`; the setting stays.
pub fn set_mode(mode: HugeMode) -> Result<(), Errno> {
    if mode != HugeMode::Never && !HAS_BEGUN.swap(true, Ordering::AcqRel) {
        let thread = Thread::new(NUMBER, false, run, &TrapFrame::default())
            .inspect_err(|_| HAS_BEGUN.store(false, Ordering::Release))?;
        sched::enqueue(thread);
    }
    memory().set_huge_mode(mode);
    Ok(())
}

/// Makes step by step. Sleeps outside the core, so that the machine can be stopped meanwhile.
fn run(_: &'static Thread) {
    let calls = memory().huge_scan_calls();
    let key = core::ptr::from_ref(calls) as u64;
    loop {
        let seen = calls.load(Ordering::SeqCst);
        let pause = match memory().scan_huge() {
            HugeScan::Idle => None,
            HugeScan::Done => Some(HugeScanSetting::ScanSleep),
            HugeScan::NoBlock => Some(HugeScanSetting::AllocSleep),
        };
        let pause = pause.map(|which| u64::from(memory().huge_scan_setting(which)));
        if pause == Some(0) {
            sched::yield_now();
            continue;
        }
        let until = pause.map(|milliseconds| time::now() + milliseconds * 1_000_000);
        let waits = || Ok(calls.load(Ordering::SeqCst) == seen);
        let _ = wait::sleep(key, u32::MAX, until, Interruptible::No, waits);
    }
}
