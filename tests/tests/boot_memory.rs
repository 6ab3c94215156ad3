//! Memory beyond `mmap`, as on the host's Linux. `./x test boot` builds the kernel and runs these
//! tests.

use faultless_tests::boot::{Machine, assert_prints_as_on_linux};

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn moving_looking_and_advising() {
    for cpus in [1, 2, 4] {
        assert_prints_as_on_linux("memory", Machine::with_cpus(cpus));
    }
}
