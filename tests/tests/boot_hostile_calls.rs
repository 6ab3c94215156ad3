//! Random system calls with hostile arguments, from several threads and processes at once
//! (`tests/programs/hostile.c`): the kernel does not panic, every process can be killed, and its memory
//! is freed. Meanwhile and at the end the kernel verifies itself: no frame may leak.
//! `./x test boot` builds the kernel and runs these tests; with `--full` they boot for as long as their budget lasts,
//! with other seeds each time.

use faultless_tests::boot::{Machine, VERIFIED, archive, compile};
use faultless_tests::budget::{Budget, seed};

/// Calls that even a busy host reaches in a round, and far more than are needed for an effect.
const LEAST_CALLS: u64 = 200;

/// Rounds of 400 ms of one boot.
const ROUNDS: u32 = 8;

fn survives(cpus: u32, memory: u32, policy: &str, children: u32) {
    let program = compile("hostile");
    let budget = Budget::new(1, "rounds of 400 ms", Some(seed()));
    for boot in budget.rounds() {
        // Every machine has its own seeds.
        let seed = budget.seed_of(boot) % 1_000_000_000 * 1000 + u64::from(cpus * 10 + memory);
        let run = format!(
            "exec=/bin/test\0argv=test\0argv=run\0argv={seed}\0argv={ROUNDS}\0argv=400\0\
             argv={children}\0policy={policy}\0{VERIFIED}"
        );
        let files: [(&str, &[u8]); 2] =
            [("bin/test", &program), (".faultless/run", run.as_bytes())];
        let ended = Machine { cpus, memory }.boot(&archive(&files));
        budget.add(u64::from(ROUNDS));
        // With so little memory the supervisor may be the largest process itself.
        let killed = (ended.signal, ended.error.as_deref())
            == (Some(9), Some("\"out of memory: the program was killed\""));
        if memory < 32 && killed {
            continue;
        }
        assert_eq!(
            (ended.exit, &ended.error),
            (Some(0), &None),
            "seed {seed}: {ended:?}"
        );
        ended.assert_verified();
        assert!(ended.stdout.ends_with("hostile: survived\n"), "{ended:?}");
        let calls = ended.system_calls.unwrap_or(0);
        assert!(calls > LEAST_CALLS * u64::from(ROUNDS), "{ended:?}");
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn one_cpu_survives_hostile_calls() {
    survives(1, 64, "speculative", 3);
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn two_cpus_survive_hostile_calls() {
    survives(2, 64, "speculative", 3);
    survives(2, 64, "vma-lock", 3);
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn four_cpus_survive_hostile_calls() {
    survives(4, 64, "speculative", 6);
    survives(4, 64, "classic", 4);
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn hostile_calls_are_survived_with_little_memory() {
    survives(1, 24, "speculative", 3);
    survives(2, 26, "speculative", 4);
}
