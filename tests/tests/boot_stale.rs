//! No stale translation is used after the call that removed it: `tests/programs/stale.c` in the kernel.
//! `./x test boot` builds the kernel and runs these tests.

use faultless_tests::boot::{Machine, VERIFIED, archive, compile};

/// Runs for three seconds, and longer if the host is busy.
fn nothing_is_stale(cpus: u32, policy: &str, touchers: u32, changers: u32) {
    let program = compile("stale");
    let run = format!(
        "exec=/bin/stale\0argv=stale\0argv=3\0argv={touchers}\0argv={changers}\0policy={policy}\0\
         {VERIFIED}"
    );
    let files: [(&str, &[u8]); 2] = [("bin/stale", &program), (".faultless/run", run.as_bytes())];
    let ended = Machine::with_cpus(cpus).boot(&archive(&files));
    assert_eq!((ended.exit, &ended.error), (Some(0), &None), "{ended:?}");
    ended.assert_verified();
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn nothing_is_stale_with_two_cpus() {
    nothing_is_stale(2, "speculative", 2, 1);
    // Faults that sleep during a copy.
    nothing_is_stale(2, "classic", 4, 1);
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn nothing_is_stale_with_four_cpus() {
    // So many writers that mailboxes overflow.
    nothing_is_stale(4, "speculative", 4, 4);
}
