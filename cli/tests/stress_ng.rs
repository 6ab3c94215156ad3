//! Debian's `stress-ng` in the kernel: five seconds of each stressor of memory. `./x test stress-ng`
//! installs it and runs this test; `boot_stress_ng` is the short form.

mod common;

use common::stress_ng;

#[test]
#[ignore = "boots the kernel for minutes: ./x test stress-ng"]
fn no_stressor_of_memory_finds_anything() {
    if stress_ng::is_there() {
        stress_ng::run_all(&stress_ng::STRESSORS, 5);
    }
}
