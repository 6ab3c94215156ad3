//! Tracing in the kernel, as on Linux. `./x test boot` builds the kernel and runs these tests.

use faultless_tests::boot::{Machine, assert_prints_as_on_linux};

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn stops_registers_memory_and_steps() {
    for cpus in [1, 2, 4] {
        assert_prints_as_on_linux("tracing", Machine::with_cpus(cpus));
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn tracers_and_tracees_end() {
    for cpus in [1, 2, 4] {
        assert_prints_as_on_linux("tracers", Machine::with_cpus(cpus));
    }
}
