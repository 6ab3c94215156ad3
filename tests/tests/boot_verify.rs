//! The kernel's verifier reports damage done on purpose (`verify-flaw=`) as an error of the run. `./x test boot`
//! runs these tests.

use faultless_tests::boot::{Ended, Machine, archive, compile};

/// Boots with a program that ends within seconds.
fn run(program: &str, cpus: u32, fields: &str) -> Ended {
    let program = compile(program);
    let run = format!("exec=/bin/test\0argv=test\0verify=1\0{fields}");
    let files: [(&str, &[u8]); 2] = [("bin/test", &program), (".faultless/run", run.as_bytes())];
    Machine::with_cpus(cpus).boot(&archive(&files))
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_sound_kernel_is_verified_while_it_runs() {
    for cpus in [1, 2, 4] {
        let verified = |program| {
            let ended = run(program, cpus, "verify-every=5\0");
            assert_eq!((ended.exit, &ended.error), (Some(0), &None), "{ended:?}");
            ended.verified.expect("it is reported")
        };
        // Several processes and threads.
        let (moments, _) = verified("processes");
        assert!(moments > 2, "{moments}");
        // The number of live processes at a moment is chance there. Here two live all the time, and at the end.
        assert!(matches!(verified("outlived"), (3.., 2)));
    }
}

/// A thread that yields within a long call may run on while the verifier stops all threads outside of the
/// core, but only until it reaches user mode.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_thread_in_long_calls_is_stopped() {
    for cpus in [1, 2] {
        let ended = run("long_calls", cpus, "verify-every=5\0");
        assert_eq!((ended.exit, &ended.error), (Some(0), &None), "{ended:?}");
        let (moments, _) = ended.verified.expect("it is reported");
        assert!(moments > 10, "{moments}");
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn damage_is_an_error() {
    for (flaw, errors) in [
        ("lost-page", &["frames have no owner"][..]),
        ("lost-pipe", &["last used as pipes: 1"][..]),
        ("lost-file", &["last used as files: 1"][..]),
        ("count", &["a page is writable that may be shared"][..]),
        ("free-page", &["a free frame is used"][..]),
        ("zero-page", &["the shared zero page was written to"][..]),
        // Which error is found first depends on the owner of the objects that share a frame with the space.
        (
            "lost-space",
            &[
                "a node, split or mapping in use is in no tree",
                "used as tables: 1",
            ],
        ),
    ] {
        let ended = run("processes", 2, &format!("verify-flaw={flaw}\0"));
        assert_eq!(
            (ended.exit, ended.signal),
            (None, None),
            "{flaw}: {ended:?}"
        );
        let said = ended.error.as_deref().unwrap_or_default();
        assert!(said.contains("verification failed: "), "{flaw}: {ended:?}");
        let named = errors.iter().any(|error| said.contains(error));
        assert!(named, "{flaw}: {ended:?}");
    }
    let unknown = run("processes", 1, "verify-flaw=none\0");
    assert!(
        unknown
            .error
            .is_some_and(|error| error.contains("none that is known"))
    );
}
