//! Random system calls with hostile arguments (`tests/programs/hostile.c`) while one in so many allocations on the
//! kernel heap fails, on every path: the kernel does not panic, every process can be killed, and no error path
//! leaks frames or heap memory. `./x test boot` builds the kernel and runs these tests.

use faultless_tests::boot::{Machine, VERIFIED, archive, compile};
use faultless_tests::budget::{Budget, seed};

/// Rounds of 400 ms of one boot.
const ROUNDS: u64 = 8;

fn survives(cpus: u32, every: u64) {
    let budget = Budget::new(1, "rounds of 400 ms", Some(seed()));
    for boot in budget.rounds() {
        survives_once(cpus, every, every.wrapping_mul(budget.seed_of(boot)));
        budget.add(ROUNDS);
    }
}

fn survives_once(cpus: u32, every: u64, seed: u64) {
    let program = compile("hostile");
    let run = format!(
        "exec=/bin/test\0argv=test\0argv=run\0argv={seed}\0argv={ROUNDS}\0argv=400\0argv=3\0\
         heap-fail={every}\0{VERIFIED}"
    );
    let files: [(&str, &[u8]); 2] = [("bin/test", &program), (".faultless/run", run.as_bytes())];
    let ended = Machine { cpus, memory: 64 }.boot(&archive(&files));
    assert_eq!(
        (ended.exit, &ended.error),
        (Some(0), &None),
        "every {every}, seed {seed}: {ended:?}"
    );
    ended.assert_verified();
    assert!(ended.stdout.ends_with("hostile: survived\n"), "{ended:?}");
    let failed = ended.heap_failures.expect("it was asked for");
    // Far fewer allocations than even a busy host reaches.
    assert!(failed * every > 100 * ROUNDS, "{ended:?}");
    eprintln!("{cpus} CPUs, every {every}: {failed} have failed");
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn the_kernel_survives_allocations_that_fail() {
    for (cpus, every) in [(1, 11), (2, 37), (1, 101)] {
        survives(cpus, every);
    }
}
