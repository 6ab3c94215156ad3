//! Every workload under every policy, on machines with all checks enabled: its output, and how
//! it ends.

use std::time::{Duration, Instant};

use faultless_tests::budget::Budget;
use faultless_workloads::{Error, NAMES, Options, Policy, Report, Swap, run};

/// A run, and what it printed.
struct Run {
    report: Report,
    stdout: String,
    stderr: String,
}

fn try_run(program: &str, options: &Options<'_>) -> Result<Run, Error> {
    let words: Vec<String> = program.split_whitespace().map(str::to_owned).collect();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let report = run(&words[0], &words[1..], options, &mut stdout, &mut stderr)?;
    Ok(Run {
        report,
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    })
}

fn checked(policy: Policy, cpus: usize) -> Options<'static> {
    Options {
        cpus,
        memory: 64 << 20,
        policy,
        check: true,
        ..Options::default()
    }
}

/// Checks a run of `quick` rounds, and with `--full` another, of as many as fit into what is left of the budget. Not
/// many short runs, because each leaves a machine behind.
fn long(quick: u32, check: impl Fn(u32)) {
    let budget = Budget::new(1, "rounds", None);
    let start = Instant::now();
    check(quick);
    budget.add(quick.into());
    let fit = budget.left().div_duration_f64(start.elapsed());
    let more = (f64::from(quick) * fit * 0.8) as u32;
    if more > quick {
        check(more);
        budget.add(more.into());
    }
}

/// Runs the program on a machine with all checks enabled, and asserts that it succeeds.
fn good(program: &str, policy: Policy, cpus: usize) -> Run {
    let run = try_run(program, &checked(policy, cpus))
        .unwrap_or_else(|error| panic!("{program} under {policy}, {cpus} CPUs: {error}"));
    let said = (&run.stdout, &run.stderr);
    assert_eq!(
        run.report.exit,
        Some(0),
        "{program} under {policy}, {cpus} CPUs: {said:?}"
    );
    assert_eq!((run.report.signal, run.stderr.as_str()), (None, ""));
    run
}

fn counter(run: &Run, name: &str) -> u64 {
    let found = run.report.counters.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}

/// The number in front of `unit`, in the line that ends with `unit`.
fn number(text: &str, unit: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_suffix(unit));
    line.and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("no {unit:?}: {text}"))
}

#[test]
fn ebizzy_prints_its_lines() {
    for &policy in Policy::ALL {
        let run = good("ebizzy -mTRp -S 1 -t 3", policy, 2);
        let records = number(&run.stdout, " records/s");
        assert!(records > 0);
        let starts: Vec<_> = run.stdout.lines().map(|line| &line[..4]).skip(1).collect();
        assert_eq!(starts, ["real", "user", "sys "], "{}", run.stdout);
        assert!(run.report.seconds >= 1.0);
        // One fault for each record, beside those of the chunks.
        let faults = counter(&run, "faults");
        assert!(
            faults >= records / 2,
            "{faults} faults, {records} records/s"
        );
        let speculative = counter(&run, "spf");
        if policy.name() == "speculative" {
            assert!(
                speculative * 100 >= faults * 99,
                "{speculative} of {faults}"
            );
        } else {
            assert_eq!(speculative, 0);
        }
    }
}

#[test]
fn ebizzy_copies_and_searches_however_it_is_asked_to() {
    let options = [
        "-z -S 1 -n 2 -s 64K",
        "-M -S 1 -p",
        "-mP -l -s 32K -S 1",
        "--true -P -p -S 1",
    ];
    for (program, &policy) in options.iter().zip(Policy::ALL.iter().cycle()) {
        let run = good(&format!("ebizzy -t 2 {program}"), policy, 2);
        assert!(number(&run.stdout, " records/s") > 0, "{program}");
    }
}

/// The write after a page has come back costs no fault, no copy and no flush: everything that is counted is the first
/// write to each page, and the read after each page-out.
#[test]
fn forceswap_writes_without_a_fault() {
    let (rounds, pages) = (20, 100);
    let both = [Swap::Compressed { slots: 1024 }, Swap::Ram { slots: 1024 }];
    for (&policy, swap) in Policy::ALL.iter().cycle().zip(both.iter().cycle()).take(6) {
        for (cpus, threads) in [(1, 1), (2, 2), (4, 4), (2, 5)] {
            let options = Options {
                swap: Some(*swap),
                ..checked(policy, cpus)
            };
            let program = format!("forceswap {threads} {rounds} {pages}");
            let run = try_run(&program, &options)
                .unwrap_or_else(|error| panic!("{program} under {policy}: {error}"));
            assert_eq!((run.report.exit, run.stderr.as_str()), (Some(0), ""));
            assert!(run.stdout.starts_with("time: "), "{}", run.stdout);
            let paged = format!("\npaged: {0} of {0}\n", rounds * pages);
            assert!(run.stdout.contains(&paged), "{}", run.stdout);
            let came_back = (rounds + 1) * pages;
            for (name, count) in [
                ("faults", pages + came_back),
                ("pgmajfault", came_back),
                ("pswpin", came_back),
                ("pswpout", came_back),
                ("pgcopy", 0),
                ("nr_tlb_remote_flush", 0),
            ] {
                assert_eq!(counter(&run, name), count, "{name}: {program}, {cpus} CPUs");
            }
        }
    }
}

#[test]
fn forceswap_needs_swap_and_three_numbers() {
    let run = |program: &str, swap| {
        let options = Options {
            swap,
            ..checked(Policy::Speculative, 2)
        };
        try_run(program, &options).unwrap_or_else(|error| panic!("{program}: {error}"))
    };
    let small = Some(Swap::Ram { slots: 16 });
    for (program, swap, words) in [
        ("forceswap 1 2 3", None, "has no swap"),
        ("forceswap 1 2 200", small, "pages were paged out"),
        ("forceswap 1 2", None, "three arguments"),
        ("forceswap 1 0 3", None, "NOPS: not a number"),
    ] {
        let run = run(program, swap);
        assert_eq!(run.report.exit, Some(1), "{program}");
        assert!(run.stderr.contains(words), "{program}: {}", run.stderr);
    }
}

#[test]
fn page_fault1_prints_an_average() {
    for (&policy, shape) in Policy::ALL
        .iter()
        .zip(["-b 4M", "-b 4M -1", "-b 1M -N"].iter().cycle())
    {
        let run = good(&format!("page_fault1 -t 2 -s 1 {shape}"), policy, 2);
        let lines: Vec<_> = run.stdout.lines().collect();
        assert_eq!(
            lines[..2],
            ["testcase:Anonymous memory page fault", "warmup"]
        );
        assert!(
            lines[2].starts_with("min:") && lines[2].contains(" max:"),
            "{}",
            lines[2]
        );
        assert_eq!(lines[3], "measurement");
        let total = lines[4].split_once(" total:").unwrap().1;
        assert_eq!(lines[5].strip_prefix("average:"), Some(total));
        assert!(total.parse::<u64>().unwrap() > 0);
    }
}

#[test]
fn first_write_loses_nothing() {
    for &policy in Policy::ALL {
        for (program, cpus) in [("-t 4 -n 200", 4), ("-t 3 -n 100 -d 1", 2), ("-n 20", 1)] {
            long(2, |rounds| {
                let program = format!("first_write {program} -r {rounds}");
                let run = good(&program, policy, cpus);
                let total = run
                    .stdout
                    .lines()
                    .find(|line| line.starts_with("total"))
                    .unwrap();
                assert!(total.ends_with(", 0 lost, 0 words not zero"), "{total}");
                assert_eq!(run.stdout.lines().count(), 7, "{}", run.stdout);
            });
        }
    }
}

#[test]
fn guard_passes_all() {
    for &policy in Policy::ALL {
        for cpus in [1, 2] {
            long(20, |rounds| {
                let run = good(&format!("guard -r {rounds}"), policy, cpus);
                assert_eq!(
                    run.stdout.lines().last(),
                    Some("38 passed, 0 failed"),
                    "{}",
                    run.stdout
                );
            });
        }
    }
}

#[test]
fn more_threads_than_cpus_take_turns() {
    let run = good("page_fault1 -t 9 -s 1 -b 256K", Policy::default(), 2);
    let line = run.stdout.lines().nth(4).unwrap();
    let slowest = line
        .strip_prefix("min:")
        .and_then(|rest| rest.split(' ').next());
    assert!(slowest.unwrap().parse::<u64>().unwrap() > 0, "{line}");
    good("ebizzy -mTRp -S 1 -t 64", Policy::default(), 1);
}

#[test]
fn options_are_answered_as_in_c() {
    for name in NAMES {
        let run = good(&format!("{name} --help"), Policy::default(), 1);
        assert!(
            run.stdout.starts_with(&format!("Usage: {name} ")),
            "{}",
            run.stdout
        );
        let run = try_run(&format!("{name} -?"), &checked(Policy::default(), 1)).unwrap();
        assert_eq!((run.report.exit, run.stdout.as_str()), (Some(1), ""));
        assert!(
            run.stderr
                .starts_with(&format!("{name}: unrecognized option: ?\nUsage"))
        );
    }
    for (program, said) in [
        (
            "ebizzy -S 0",
            "ebizzy: -S: not a number from 1 to 2147483647: 0\n",
        ),
        ("ebizzy -mM", "ebizzy: -m and -M exclude each other\n"),
        (
            "ebizzy -s 7",
            "ebizzy: -s: a chunk of 7 bytes cannot hold a record of 8\n",
        ),
        (
            "page_fault1 what",
            "page_fault1: unexpected argument: what\n",
        ),
        (
            "first_write -t 513",
            "first_write: -t: not a number from 1 to 512: 513\n",
        ),
        ("guard -r x", "guard: -r: not a number of rounds: x\n"),
        (
            "guard nothing",
            "guard: no check has such a name; -l lists them\n",
        ),
        (
            "ebizzy -m -n 2147483647 -S 1",
            "ebizzy: cannot allocate 17179869176 bytes",
        ),
    ] {
        let run = try_run(program, &checked(Policy::default(), 1)).unwrap();
        assert_eq!(run.report.exit, Some(1), "{program}");
        assert!(run.stderr.starts_with(said), "{program}: {}", run.stderr);
    }
}

#[test]
fn memory_that_runs_out_kills() {
    for &policy in Policy::ALL {
        let options = Options {
            memory: 4 << 20,
            ..checked(policy, 2)
        };
        let run = try_run("page_fault1 -t 4 -b 2M -s 30", &options).unwrap();
        assert_eq!(
            (run.report.exit, run.report.signal),
            (None, Some(9)),
            "{}",
            run.stdout
        );
        assert_eq!(
            run.stderr,
            "page_fault1: killed: the machine's memory is exhausted\n"
        );
    }
}

#[test]
fn what_cannot_be_started_is_an_error() {
    let error = try_run("no-such", &Options::default()).err().unwrap();
    assert!(
        NAMES.iter().all(|name| error.to_string().contains(name)),
        "{error}"
    );
    for (cpus, memory) in [(0, 1 << 20), (100_000, 1 << 20), (1, 4096)] {
        let options = Options {
            cpus,
            memory,
            ..Options::default()
        };
        assert!(matches!(
            try_run("guard -l", &options),
            Err(Error::Machine(_))
        ));
    }
    // The smallest machines: an error or an end, and no panic.
    for pages in 16..40 {
        let options = Options {
            cpus: 1,
            memory: pages << 12,
            ..Options::default()
        };
        if let Ok(run) = try_run("guard -l", &options) {
            assert!(
                run.report.exit == Some(0) || run.report.signal == Some(9),
                "{pages} pages"
            );
        }
    }
}

#[test]
fn the_caller_can_stop_it() {
    for program in [
        "ebizzy -mTRp -t 5",
        "first_write -r 1000000 -d 1",
        "page_fault1 -b 1M",
    ] {
        let start = Instant::now();
        let stop = || start.elapsed() > Duration::from_millis(200);
        let options = Options {
            stop: &stop,
            ..checked(Policy::default(), 2)
        };
        let Run { report, stdout, .. } = try_run(program, &options).unwrap();
        assert_eq!((report.exit, report.signal), (None, None), "{program}");
        assert!(start.elapsed() < Duration::from_secs(4), "{program}");
        // It stops in the middle, without a report.
        assert!(
            !stdout.contains("records/s") && !stdout.contains("total"),
            "{stdout}"
        );
    }
}
