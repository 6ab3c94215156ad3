//! Debian's `stress-ng` in the kernel: each stressor of memory, in turn. `./x test stress-ng` installs it and runs this
//! test; `boot_stress_ng` is the short form.

mod common;

use common::stress_ng;
use faultless_tests::budget::share;

/// Seconds of a stressor's share in which it does not run: the kernel boots, and verifies itself.
const BOOT: u64 = 3;

#[test]
#[ignore = "boots the kernel for minutes: ./x test stress-ng"]
fn no_stressor_of_memory_finds_anything() {
    if stress_ng::is_there() {
        let seconds = share().map_or(5, |share| share.as_secs().saturating_sub(BOOT).max(1));
        stress_ng::run_all(&stress_ng::STRESSORS, seconds);
    }
}
