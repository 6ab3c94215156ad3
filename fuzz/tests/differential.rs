//! The host's kernel and the soft machine: the quick form of `./x fuzz differential`.

use std::fs;
use std::path::{Path, PathBuf};

use faultless_fuzz::corpus::{Kept, read};
use faultless_fuzz::host::HostSide;
use faultless_fuzz::judge::{Finding, both, judge};
use faultless_fuzz::shrink::shrink;
use faultless_fuzz::side::{Side, SoftSide, Stopped};
use faultless_fuzz::{Program, Scene, differences, draw};
use faultless_tests::budget::{Budget, seed};

const EXECUTOR: &str = env!("CARGO_BIN_EXE_faultless-executor");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sides() -> (SoftSide, HostSide) {
    let soft = SoftSide::start().expect("a soft machine");
    (soft, HostSide::new(Path::new(EXECUTOR)))
}

/// Shows the first of the programs that differs, made small.
fn check(programs: &[Program], soft: &mut SoftSide, host: &mut HostSide) -> Result<(), Stopped> {
    let (here, there) = both(soft, host, |side| side.digests(programs))?;
    let pairs = programs.iter().zip(here.iter().zip(&there));
    let differ = pairs.filter(|(_, (here, there))| here != there);
    let differ: Vec<Program> = differ.map(|(program, _)| program.clone()).collect();
    let judged = judge(&differ, soft, host)?;
    let Some(finding) = judged.findings.into_iter().flatten().next() else {
        return Ok(());
    };
    let signature = finding.signature();
    let mut last = finding.clone();
    let fails = |programs: &[Program]| -> Result<Vec<bool>, Stopped> {
        let judged = judge(programs, soft, host)?;
        let same = |finding: &&Finding| finding.signature() == signature;
        let findings = judged
            .findings
            .iter()
            .map(|finding| finding.as_ref().filter(same));
        let findings: Vec<_> = findings.collect();
        if let Some(first) = findings.iter().flatten().next() {
            last = (*first).clone();
        }
        Ok(findings.iter().map(Option::is_some).collect())
    };
    shrink(&finding.program, fails)?;
    let at = last.step.map(|step| last.program.ops[step].to_string());
    panic!(
        "at {}:\nours {}\nLinux {}\n{}",
        at.as_deref().unwrap_or("the end"),
        last.ours,
        last.theirs,
        last.program
    );
}

#[test]
fn random_programs() {
    const PROGRAMS: u64 = 1500;
    let budget = Budget::new(1, "programs", Some(seed()));
    let (mut soft, mut host) = sides();
    for round in budget.rounds() {
        let first = budget.seed_of(round) << 32;
        let programs = (0..PROGRAMS).map(|number| draw::program(first | number));
        // Whether the host has huge pages is a setting of its own.
        let programs = programs.filter(|program| program.scene != Scene::Huge);
        let programs: Vec<Program> = programs.collect();
        check(&programs, &mut soft, &mut host).expect("both run them");
        budget.add(PROGRAMS);
    }
}

/// Programs with huge pages leave the soft machine sound, and lose no frame.
#[test]
fn programs_with_huge_pages() {
    let mut soft = SoftSide::start().expect("a soft machine");
    let programs = (seed() << 32..).map(draw::program);
    let huge = programs.filter(|program| program.scene == Scene::Huge);
    let programs: Vec<Program> = huge.take(100).collect();
    for (record, program) in soft
        .records(&programs)
        .expect("it runs")
        .iter()
        .zip(&programs)
    {
        assert_eq!(record.status, 0, "{}\n{program}", record.text);
    }
}

#[test]
fn the_corpus() {
    let kept = read(&root().join("tests/corpus/differential")).expect("it can be read");
    assert!(!kept.is_empty());
    let programs: Vec<Program> = kept
        .into_iter()
        .map(|Kept { program, .. }| program)
        .collect();
    let (mut soft, mut host) = sides();
    check(&programs, &mut soft, &mut host).expect("both run them");
}

/// The host and the soft machine count the faults of accesses, and there is something to count.
#[test]
fn faults_are_counted() {
    let text = "scene open\n\
                mmap @0 4p read|write private|anonymous|fixed -1\n\
                faults @0 5\n\
                faults @0 6\n\
                faults @1 0\n\
                faults @1 7\n\
                madvise @0 1p dontneed\n\
                faults @0 0\n\
                faults @9 0\n\
                mprotect @1 1p read\n\
                faults @1 8\n\
                mprotect @1 1p read|write\n\
                faults @1 8\n\
                0.0 fork 1\n\
                1.0 faults @1 9\n\
                0.0 faults @1 9\n\
                1.0 faults @1 0\n";
    let programs = Program::parse_all(text).expect("a program");
    let (mut soft, mut host) = sides();
    let (here, there) =
        both(&mut soft, &mut host, |side| side.records(&programs)).expect("it runs");
    for record in [&here[0], &there[0]] {
        let counts = |step| {
            let answer = record.answer(step).expect("it was done");
            let counts = answer.split_once(" after ");
            (
                counts.map(|(_, counts)| counts.to_owned()),
                answer.to_owned(),
            )
        };
        for (step, minor) in [
            (1, 1),
            (2, 0),
            (3, 1),
            (4, 1),
            (6, 1),
            (7, 0),
            (9, 0),
            (11, 0),
            (13, 1),
            (14, 1),
        ] {
            let (counts, answer) = counts(step);
            let expected = format!("{minor} minor and 0 major");
            assert_eq!(counts, Some(expected), "{step}: {answer}");
        }
        // A load in a child.
        assert_eq!(counts(15), (None, "0x9".to_owned()));
    }
}

/// Random programs page memory out, and use it afterwards: without this they would compare nothing new.
#[test]
fn pages_go_out_and_come_back() {
    let mut soft = SoftSide::start().expect("a soft machine");
    let programs: Vec<Program> = (0..400).map(draw::program).collect();
    soft.digests(&programs).expect("it runs them");
    let count = soft.swapped_in();
    assert!(count > Some(1000), "{count:?}");
}

/// A side that forgets what was stored is found out, and the program made small.
#[test]
fn a_wrong_answer_is_found() {
    struct Forgetful(SoftSide);
    impl Side for Forgetful {
        fn name(&self) -> &'static str {
            "forgetful"
        }
        fn digests(&mut self, programs: &[Program]) -> Result<Vec<u64>, Stopped> {
            self.0.digests(programs)
        }
        fn records(
            &mut self,
            programs: &[Program],
        ) -> Result<Vec<faultless_fuzz::Record>, Stopped> {
            let mut records = self.0.records(programs)?;
            for record in &mut records {
                record.text = record.text.replace(" 40=", " 48=");
            }
            Ok(records)
        }
    }
    let mut forgetful = Forgetful(SoftSide::start().expect("a soft machine"));
    let mut right = SoftSide::start().expect("a soft machine");
    let programs: Vec<Program> = (0..200).map(draw::program).collect();
    let judged = judge(&programs, &mut forgetful, &mut right).expect("both run them");
    let finding = judged
        .findings
        .into_iter()
        .flatten()
        .next()
        .expect("it is found");
    let small = shrink(&finding.program, |programs| -> Result<Vec<bool>, Stopped> {
        let judged = judge(programs, &mut forgetful, &mut right)?;
        Ok(judged.findings.iter().map(Option::is_some).collect())
    });
    let small = small.expect("both run them");
    assert!(small.ops.len() <= 3, "{small}");
}

#[test]
fn the_page_is_the_table() {
    let path = root().join("docs/differences.md");
    let page = differences::page();
    if std::env::var_os("FAULTLESS_WRITE").is_some() {
        fs::write(&path, &page).expect("it can be written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, page, "FAULTLESS_WRITE=1 writes it again");
}
