//! The twins of Linux's KVM tests: their lines, and what they count.

use faultless_workloads::{GuestOptions, NAMES, Options, Report, run};

const MIB: u64 = 256;

fn try_run(program: &str, guests: GuestOptions) -> (Report, String, String) {
    let words: Vec<String> = program.split_whitespace().map(str::to_owned).collect();
    let options = Options {
        cpus: 2,
        memory: 64 << 20,
        check: true,
        guests,
        ..Options::default()
    };
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let report = run(&words[0], &words[1..], &options, &mut stdout, &mut stderr);
    let report = report.unwrap_or_else(|error| panic!("{program}: {error}"));
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    (report, stdout, stderr)
}

fn good(program: &str, guests: GuestOptions) -> (Report, String) {
    let (report, stdout, stderr) = try_run(program, guests);
    assert_eq!(report.exit, Some(0), "{program}: {stdout}{stderr}");
    (report, stdout)
}

fn counts(report: &Report) -> [u64; 4] {
    ["pf_taken", "pf_fast", "pf_fixed", "pf_spurious"].map(|name| {
        let found = report.counters.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    })
}

/// The lines, with a digit for each number of seconds.
fn without_times(text: &str) -> Vec<String> {
    let is_time =
        |word: &str| word.trim_end_matches(['.', ')']).ends_with('s') && word.contains('.');
    let cut = |word: &str| match is_time(word) {
        true => "T".to_owned(),
        false => word.to_owned(),
    };
    let line = |line: &str| {
        line.split(['/', ' '])
            .map(cut)
            .collect::<Vec<_>>()
            .join(" ")
    };
    text.lines().map(line).collect()
}

#[test]
fn dirty_log_perf_test_prints_its_lines() {
    let (report, text) = good(
        "dirty_log_perf_test -v 2 -b 1M -i 2",
        GuestOptions::default(),
    );
    let lines = [
        "Test iterations: 2",
        "Testing guest mode: PA-bits:ANY, VA-bits:48,  4K pages",
        "guest physical test memory: [0xffffffdff000, 0xfffffffff000)",
        "Populate memory time: T",
        "Enabling dirty logging time: T",
        "",
        "Iteration 1 dirty memory time: T",
        "Iteration 1 get dirty log time: T",
        "Iteration 1 clear dirty log time: T",
        "Iteration 2 dirty memory time: T",
        "Iteration 2 get dirty log time: T",
        "Iteration 2 clear dirty log time: T",
        "Disabling dirty logging time: T",
        "Get dirty log over 2 iterations took T (Avg T iteration)",
        "Clear dirty log over 2 iterations took T (Avg T iteration)",
    ];
    assert_eq!(without_times(&text), lines, "{text}");
    // The log begins full: only the second iteration's stores find protected pages.
    let [taken, fast, fixed, spurious] = counts(&report);
    assert_eq!([taken, fast, fixed + spurious], [4 * MIB, 2 * MIB, 4 * MIB]);
}

#[test]
fn every_option_of_dirty_log_perf_test() {
    for options in [
        "-g -o -v 3",
        "-a -w 30 -r 7 -s shmem -v 2",
        "-x 3 -p 0x1000000 -e",
        "-m 9 -s anonymous -x 5 -o -v 2 -g -e",
    ] {
        let program = format!("dirty_log_perf_test -b 1M -i 3 {options}");
        for tdp_mmu in [true, false] {
            let guests = GuestOptions {
                tdp_mmu,
                ..GuestOptions::default()
            };
            let (_, text) = good(&program, guests);
            assert!(
                text.contains("\nIteration 3 get dirty log time: 0."),
                "{text}"
            );
            let clears = text.contains("\nClear dirty log over 3 iterations took 0.");
            assert_eq!(clears, !options.contains("-g"), "{text}");
        }
    }
}

#[test]
fn the_guests_mmu_is_as_asked_for() {
    let program = "dirty_log_perf_test -v 1 -b 1M -i 2";
    let (slow, _) = good(
        program,
        GuestOptions {
            fast_page_fault: false,
            ..GuestOptions::default()
        },
    );
    assert_eq!(counts(&slow), [2 * MIB, 0, 2 * MIB, 0]);
    let (logged, _) = good(
        program,
        GuestOptions {
            dirty_bits: true,
            ..GuestOptions::default()
        },
    );
    assert_eq!(counts(&logged), [MIB, 0, MIB, 0], "logging costs faults");
}

/// Idle marks take rights away in place, and the next access takes the fast path; clear_refs takes pages out of the tables.
#[test]
fn page_idle_and_clear_refs_differ() {
    for tdp_mmu in [true, false] {
        let guests = GuestOptions {
            accessed_bits: false,
            tdp_mmu,
            ..GuestOptions::default()
        };
        let program = "access_tracking_perf_test -v 2 -b 1M";
        let (idle, text) = good(program, guests);
        // Twice: written, and read.
        assert_eq!(counts(&idle), [6 * MIB, 4 * MIB, 6 * MIB, 0], "{text}");
        let (cleared, _) = good(&format!("{program} --clear-refs"), guests);
        assert_eq!(counts(&cleared), [6 * MIB, 0, 6 * MIB, 0]);
        let with_bits = GuestOptions {
            accessed_bits: true,
            ..guests
        };
        let (marked, _) = good(program, with_bits);
        assert_eq!(
            counts(&marked),
            [2 * MIB, 0, 2 * MIB, 0],
            "bits cost faults"
        );
    }
}

#[test]
fn access_tracking_perf_test_prints_its_lines() {
    for options in ["", " -o -v 2", " -s shmem", " --clear-refs"] {
        let program = format!("access_tracking_perf_test -b 1M{options}");
        let (_, text) = good(&program, GuestOptions::default());
        let lines = [
            "",
            "Populating memory             : T",
            "Writing to populated memory   : T",
            "Reading from populated memory : T",
            "Mark memory idle              : T",
            "Writing to idle memory        : T",
            "Mark memory idle              : T",
            "Reading from idle memory      : T",
        ];
        assert_eq!(without_times(&text)[2..], lines, "{text}");
    }
}

#[test]
fn bad_options_are_refused() {
    assert!(NAMES.contains(&"dirty_log_perf_test"));
    for (program, why) in [
        ("dirty_log_perf_test -i 1", "-i: not a number from 2"),
        (
            "dirty_log_perf_test -s hugetlb",
            "Unknown backing src type: hugetlb",
        ),
        ("dirty_log_perf_test -n", "unrecognized option: n"),
        ("dirty_log_perf_test -m 2", "-m: not a number"),
        (
            "access_tracking_perf_test -b 1M x",
            "unexpected argument: x",
        ),
        (
            "dirty_log_perf_test -b 1M -x 300",
            "KVM_SET_USER_MEMORY_REGION",
        ),
    ] {
        let (report, _, stderr) = try_run(program, GuestOptions::default());
        assert_eq!(report.exit, Some(1), "{program}");
        assert!(stderr.contains(why), "{program}: {stderr}");
    }
    let (report, text, _) = try_run("dirty_log_perf_test -h", GuestOptions::default());
    assert_eq!(report.exit, Some(0));
    assert!(text.contains("-b bytes"), "{text}");
}

#[test]
fn without_memory_it_is_killed() {
    let (report, _, stderr) = try_run("dirty_log_perf_test -b 128M", GuestOptions::default());
    assert_eq!((report.exit, report.signal), (None, Some(9)), "{stderr}");
}
