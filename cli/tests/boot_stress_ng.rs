//! Debian's `stress-ng` in the kernel, in short: a second of the stressors with the widest coverage.
//! `./x test boot` installs it and runs this test; `stress_ng` has all of them.

mod common;

use common::stress_ng;

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn some_stressors_find_nothing_in_a_second() {
    let some = ["mmapmany", "vm-segv", "fork", "memfd"];
    assert!(some.iter().all(|one| stress_ng::STRESSORS.contains(one)));
    if stress_ng::is_there() {
        stress_ng::run_all(&some, 1);
    }
}
