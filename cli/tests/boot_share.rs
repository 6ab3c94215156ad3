//! The share of faults that each program resolves without a lock, and the reasons of the rest: the goal is 99 %.
//! `./x test boot` runs this; `docs/speculative-share.md` has the table, and how to print it.

mod common;

use std::path::Path;

use common::{programs, run, stderr, stdout};
use faultless_tests::full;
use serde_json::Value;

/// The goal, in per cent.
const SHARE: u64 = 99;

/// Why a fault can have fallen back.
const REASONS: [&str; 5] = [
    "pte_lock",
    "vma_changed",
    "vma_noanon",
    "vma_notsup",
    "pmd_changed",
];

/// A program to run.
struct Row {
    name: String,
    /// Options of `stat`.
    options: Vec<String>,
    /// The program and its arguments; `{cpus}` is filled in.
    words: Vec<String>,
    exit: i32,
}

impl Row {
    fn new(name: &str, words: &[&str]) -> Self {
        Row {
            name: name.to_owned(),
            options: Vec::new(),
            words: words.iter().map(|&word| word.to_owned()).collect(),
            exit: 0,
        }
    }

    /// Gives the program a file, at `/NAME`.
    fn with_file(mut self, folder: &Path, name: &str) -> Self {
        let path = folder.join(name);
        self.options
            .extend(["--file".to_owned(), format!("{}:/{name}", path.display())]);
        self
    }

    /// Gives the machine swap of this size.
    fn with_swap(mut self, size: &str) -> Self {
        self.options.extend(["--swap".to_owned(), size.to_owned()]);
        self
    }

    /// Gives the machine so much memory.
    fn with_memory(mut self, size: &str) -> Self {
        self.options
            .extend(["--memory".to_owned(), size.to_owned()]);
        self
    }

    fn that_exits_with(mut self, exit: i32) -> Self {
        self.exit = exit;
        self
    }

    /// The counters of a run.
    fn run(&self, folder: &Path, cpus: u32) -> Value {
        let file = folder.join("stat.json");
        let cpus = cpus.to_string();
        let mut arguments = vec!["stat", "--cpus", &cpus, "--timeout", "300"];
        arguments.extend(["--json", file.to_str().unwrap()]);
        arguments.extend(self.options.iter().map(String::as_str));
        arguments.push("--");
        let words = self.words.iter();
        let words: Vec<_> = words.map(|word| word.replace("{cpus}", &cpus)).collect();
        arguments.extend(words.iter().map(String::as_str));
        let output = run(&arguments);
        let said = format!("{}{}", stdout(&output), stderr(&output));
        assert_eq!(
            output.status.code(),
            Some(self.exit),
            "{arguments:?} {said}"
        );
        let file: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        common::assert_faults_add_up(&file["runs"][0]);
        file["runs"][0]["counters"].clone()
    }
}

/// Runs the programs with 4 CPUs (`./x test --full`: also with 1 and 2, where less can go wrong),
/// prints a line for each run, and then checks them all.
fn assert_shares(rows: &[Row], folder: &Path) {
    let all_cpus: &[u32] = if full() { &[1, 2, 4] } else { &[4] };
    let mut under = Vec::new();
    for row in rows {
        for &cpus in all_cpus {
            let counters = row.run(folder, cpus);
            let counter = |name: &str| counters[name].as_u64().unwrap();
            let (faults, spf) = (counter("faults"), counter("spf"));
            let rest = REASONS.iter().map(|reason| {
                let count = counter(&format!("pagefault:spf_{reason}"));
                (count > 0).then(|| format!("{reason} {count}"))
            });
            let rest: Vec<_> = rest.flatten().collect();
            let share = spf as f64 / faults as f64;
            let line = format!(
                "| {} | {cpus} | {faults} | {:.3} % | {} |",
                row.name,
                (share * 1e5).floor() / 1e3,
                rest.join(", ")
            );
            println!("{line}");
            if faults == 0 || spf * 100 < faults * SHARE {
                under.push(line);
            }
        }
    }
    assert!(under.is_empty(), "under {SHARE} %:\n{}", under.join("\n"));
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn static_programs() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = Vec::new();
    for (name, compiler, arguments) in programs::LIBRARIES {
        let own = folder.path().join(name.replace(' ', "-"));
        std::fs::create_dir(&own).unwrap();
        let program = programs::build("processes", compiler, arguments, &own);
        rows.push(Row::new(name, &[program.to_str().unwrap()]));
    }
    if let Some(program) = programs::build_go(folder.path()) {
        rows.push(Row::new("Go", &[program.to_str().unwrap()]));
    }
    assert_shares(&rows, folder.path());
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn busybox() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let bytes: Vec<u8> = (0..4_000_000_u32)
        .map(|n| (n.wrapping_mul(n) >> 7) as u8)
        .collect();
    std::fs::write(at.join("bytes"), bytes).unwrap();
    let numbers: String = (0..100_000_u64)
        .map(|n| format!("{}\n", n * 1_000_003 % 1_000_033))
        .collect();
    std::fs::write(at.join("numbers"), numbers).unwrap();
    let script = programs::root().join("tests/programs/shell.sh");
    std::fs::copy(script, at.join("script")).unwrap();
    let awk = "BEGIN { for (i = 0; i < 100000; i++) a[i] = sprintf(\"%020d\", i * 7919 % 100003); \
               for (i in a) n += length(a[i]); print n }";
    let busybox = |name: &str, words: &[&str]| {
        let mut all = vec!["/bin/busybox"];
        all.extend(words);
        Row::new(name, &all)
    };
    assert_shares(
        &[
            busybox("busybox sha256sum", &["sha256sum", "/bytes"]).with_file(at, "bytes"),
            busybox("busybox awk", &["awk", awk]),
            busybox("busybox sort", &["sort", "-n", "/numbers"]).with_file(at, "numbers"),
            busybox("busybox sh", &["sh", "/script"])
                .with_file(at, "script")
                .that_exits_with(5),
        ],
        at,
    );
}

/// Each workload of the suite, in its form for this number of CPUs, but short.
const SUITE: [(&str, &str); 39] = [
    ("page_fault1_threads", "page_fault1 -t {cpus}"),
    ("page_fault1_huge", "page_fault1 -t {cpus}"),
    ("page_fault1_processes", "page_fault1 -P -t {cpus}"),
    ("page_fault2_threads", "page_fault2 -b 16M -t {cpus}"),
    ("page_fault2_processes", "page_fault2 -b 16M -P -t {cpus}"),
    ("page_fault3_threads", "page_fault3 -b 16M -t {cpus}"),
    ("page_fault3_processes", "page_fault3 -b 16M -P -t {cpus}"),
    ("ebizzy_compat", "ebizzy -mTRp -t {cpus}"),
    ("ebizzy_true_random", "ebizzy -mTp --true-random -t {cpus}"),
    ("mmap1", "mmap1 -t {cpus}"),
    ("mmap2_shared", "mmap2 -b 16M -t {cpus}"),
    ("mmap2_private", "mmap2 -b 16M -p -t {cpus}"),
    ("mremap1", "mremap1 -t {cpus}"),
    ("mremap1_uneven", "mremap1 -b 16M -u -t {cpus}"),
    ("malloc1", "malloc1 -t {cpus}"),
    ("malloc1_huge", "malloc1 -t {cpus}"),
    ("brk1", "brk1 -P -t {cpus}"),
    ("brk1_touched", "brk1 -w -P -t {cpus}"),
    ("thread_storm", "thread_storm -t {cpus}"),
    ("fork_small", "fork1 -t {cpus}"),
    ("fork_large", "fork1 -b 64M -t {cpus}"),
    ("fork_large_written", "fork1 -b 64M -w 256 -t {cpus}"),
    ("fork_1g", "fork1 -b 128M -t {cpus}"),
    ("fork_1g_huge", "fork1 -b 128M -t {cpus}"),
    ("fork_1000_mappings", "fork1 -n 1000 -t {cpus}"),
    ("fork_stall", "fork_stall -b 64M -n 3"),
    ("exec_small", "exec1 -t {cpus}"),
    ("exec_large", "exec1 -b 64M -t {cpus}"),
    ("exec_vfork", "exec1 -v -b 64M -t {cpus}"),
    ("pipe1", "pipe1 -t {cpus}"),
    ("context_switch_threads", "context_switch1 -t {cpus}"),
    ("context_switch_processes", "context_switch1 -P -t {cpus}"),
    ("uffd_missing", "uffd_missing -t {cpus}"),
    ("uffd_wp", "uffd_wp -t {cpus}"),
    ("forceswap_1", "forceswap {cpus} 500 1"),
    ("forceswap_64", "forceswap {cpus} 20 64"),
    ("forceswap_ram_1", "forceswap {cpus} 500 1"),
    ("forceswap_ram_64", "forceswap {cpus} 20 64"),
    ("overcommitted_random", "overcommit 120 2000"),
];

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn the_suite_and_guard() {
    let listed = stdout(&run(&["compare", "--list"]));
    let listed: Vec<_> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(listed, SUITE.map(|(name, _)| name));
    let row = |(name, line): (&str, &str)| {
        let mut words: Vec<_> = line.split(' ').collect();
        let short: &[&str] = match words[0] {
            "ebizzy" => &["-S", "1"],
            "fork_stall" | "forceswap" | "overcommit" => &[],
            _ => &["-s", "1", "-m", "250"],
        };
        words.extend(short);
        match words[0] {
            "forceswap" if name.contains("_ram_") => Row::new(name, &words).with_swap("64M:ram"),
            "forceswap" => Row::new(name, &words).with_swap("64M"),
            "overcommit" => Row::new(name, &words).with_swap("128M").with_memory("96M"),
            _ => Row::new(name, &words),
        }
    };
    let mut rows: Vec<_> = SUITE.into_iter().map(row).collect();
    rows.push(Row::new("guard", &["guard", "-r", "50"]));
    rows.push(Row::new(
        "first_write",
        &["first_write", "-t", "{cpus}", "-n", "50", "-r", "5"],
    ));
    let folder = tempfile::tempdir().unwrap();
    assert_shares(&rows, folder.path());
}
