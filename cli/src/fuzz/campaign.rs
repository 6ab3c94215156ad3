//! A campaign runs batches of programs on all systems, and collects the differences.
//!
//! A batch runs on all systems in parallel; each returns only a hash of every record. Programs with different
//! hashes run again in detail, and intended differences are left out. A remaining difference is kept, with a
//! shrunk program for the first one of its kind.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use faultless_fuzz::Program;
use faultless_fuzz::judge::{Finding, judge};
use faultless_fuzz::shrink::shrink;
use faultless_fuzz::side::{Side, Stopped};

use crate::interrupt;
use crate::report::{FuzzFinding, FuzzSide};

/// Programs of one batch that are judged in detail. If more differ, they have one cause.
const LOOKED_AT: usize = 400;
/// Programs that a stopped system runs again, to find the one that stopped it.
const SUSPECTS: usize = 80;

/// The systems, and their results so far.
pub struct Campaign {
    /// The reference, a Linux.
    oracle: Box<dyn Side>,
    others: Vec<Box<dyn Side>>,
    shrinks: bool,
    /// The results of each of `others`.
    pub sides: Vec<FuzzSide>,
    /// Programs run on all of them.
    pub programs: u64,
    /// Their operations.
    pub operations: u64,
    /// Differences, one of each kind.
    pub findings: Vec<FuzzFinding>,
}

/// A new difference.
pub struct Found<'a>(pub &'a FuzzFinding);

impl Campaign {
    /// A campaign that compares `others` with `oracle`.
    pub fn new(oracle: Box<dyn Side>, others: Vec<Box<dyn Side>>, shrinks: bool) -> Self {
        let side = |side: &dyn Side| FuzzSide {
            name: side.name(),
            against: oracle.name(),
            operations: 0,
            seconds: 0.0,
            swapped_in: [None; 2],
            differences: 0,
            left_out: BTreeMap::new(),
        };
        Campaign {
            sides: others.iter().map(|other| side(other.as_ref())).collect(),
            oracle,
            others,
            shrinks,
            programs: 0,
            operations: 0,
            findings: Vec::new(),
        }
    }

    /// Runs a batch on all systems. An interrupted batch does not count in the totals.
    pub fn batch(&mut self, programs: &[Program], found: &mut dyn FnMut(Found<'_>)) -> Result<()> {
        let (right, theirs) = self.digests(programs);
        if interrupt::is_requested() {
            return Ok(());
        }
        let right = match right {
            Ok((digests, _)) => digests,
            Err(stopped) => bail!("{}: {stopped}", self.oracle.name()),
        };
        let operations: u64 = programs
            .iter()
            .map(|program| program.ops.len() as u64)
            .sum();
        for (number, digests) in theirs.into_iter().enumerate() {
            match digests {
                Ok((digests, time)) => {
                    let pairs = programs.iter().zip(digests.iter().zip(&right));
                    let differ = pairs.filter(|(_, (ours, right))| ours != right);
                    let differ: Vec<Program> = differ.map(|(program, _)| program.clone()).collect();
                    self.sides[number].seconds += time.as_secs_f64();
                    self.look(number, &differ, found)?;
                }
                Err(stopped) => self.stopped(number, programs, &stopped, found),
            }
            if interrupt::is_requested() {
                return Ok(());
            }
            self.sides[number].operations += operations;
        }
        for (figures, side) in self.sides.iter_mut().zip(&self.others) {
            figures.swapped_in = [side.swapped_in(), self.oracle.swapped_in()];
        }
        self.programs += programs.len() as u64;
        self.operations += operations;
        Ok(())
    }

    /// Runs the programs on all systems in parallel.
    #[allow(clippy::type_complexity)]
    fn digests(
        &mut self,
        programs: &[Program],
    ) -> (
        Result<(Vec<u64>, Duration), Stopped>,
        Vec<Result<(Vec<u64>, Duration), Stopped>>,
    ) {
        let ask = |side: &mut Box<dyn Side>| {
            let start = Instant::now();
            side.digests(programs)
                .map(|digests| (digests, start.elapsed()))
        };
        let failed = |_| Stopped {
            after: 0,
            why: "a thread of this command failed".to_owned(),
        };
        std::thread::scope(|scope| {
            let oracle = &mut self.oracle;
            let oracle = scope.spawn(move || ask(oracle));
            let others = self.others.iter_mut();
            let others: Vec<_> = others.map(|side| scope.spawn(move || ask(side))).collect();
            let join =
                |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().map_err(failed)?;
            (join(oracle), others.into_iter().map(join).collect())
        })
    }

    /// Judges programs that differ on one of the systems.
    fn look(
        &mut self,
        number: usize,
        differ: &[Program],
        found: &mut dyn FnMut(Found<'_>),
    ) -> Result<()> {
        let looked_at = &differ[..differ.len().min(LOOKED_AT)];
        if looked_at.is_empty() {
            return Ok(());
        }
        let (ours, oracle) = (&mut self.others[number], &mut self.oracle);
        let judged = match judge(looked_at, &mut **ours, &mut **oracle) {
            Ok(judged) => judged,
            Err(_) if interrupt::is_requested() => return Ok(()),
            Err(stopped) => bail!("{stopped}"),
        };
        for (row, count) in judged.left_out {
            *self.sides[number]
                .left_out
                .entry(row.to_owned())
                .or_default() += count;
        }
        for finding in judged.findings.into_iter().flatten() {
            self.keep(number, finding, found);
        }
        Ok(())
    }

    /// Keeps a finding, shrunk, if it is the first of its kind.
    fn keep(&mut self, number: usize, finding: Finding, found: &mut dyn FnMut(Found<'_>)) {
        self.sides[number].differences += 1;
        let side = self.sides[number].name;
        let signature = finding.signature();
        let same = |known: &&mut FuzzFinding| known.side == side && known.signature == signature;
        if let Some(known) = self.findings.iter_mut().find(same) {
            known.count += 1;
            return;
        }
        let finding = if self.shrinks {
            self.shrink(number, finding)
        } else {
            finding
        };
        self.add(number, &finding, signature, found);
    }

    fn add(
        &mut self,
        number: usize,
        finding: &Finding,
        signature: String,
        found: &mut dyn FnMut(Found<'_>),
    ) {
        let at = match finding.step {
            Some(step) => finding.program.ops[step].to_string(),
            None => "in the end".to_owned(),
        };
        self.findings.push(FuzzFinding {
            side: self.sides[number].name,
            against: self.sides[number].against,
            signature,
            count: 1,
            program: finding.program.to_string(),
            at,
            ours: finding.ours.clone(),
            theirs: finding.theirs.clone(),
        });
        if let Some(last) = self.findings.last() {
            found(Found(last));
        }
    }

    /// Returns the same finding with a smaller program, or the finding itself if a system stops meanwhile.
    fn shrink(&mut self, number: usize, finding: Finding) -> Finding {
        let (ours, oracle) = (&mut self.others[number], &mut self.oracle);
        let signature = finding.signature();
        let mut smallest = finding.clone();
        let result = shrink(&finding.program, |programs| -> Result<Vec<bool>, Stopped> {
            if interrupt::is_requested() {
                return Ok(vec![false; programs.len()]);
            }
            let judged = judge(programs, &mut **ours, &mut **oracle)?;
            let same = |finding: &&Finding| finding.signature() == signature;
            let findings = judged
                .findings
                .iter()
                .map(|finding| finding.as_ref().filter(same));
            let findings: Vec<_> = findings.collect();
            if let Some(first) = findings.iter().flatten().next() {
                smallest = (*first).clone();
            }
            Ok(findings.iter().map(Option::is_some).collect())
        });
        match result {
            Ok(_) => smallest,
            Err(_) => finding,
        }
    }

    /// Finds the program that stopped a system.
    fn stopped(
        &mut self,
        number: usize,
        programs: &[Program],
        stopped: &Stopped,
        found: &mut dyn FnMut(Found<'_>),
    ) {
        self.sides[number].differences += 1;
        let from = stopped.after.min(programs.len());
        let suspects = &programs[from..programs.len().min(from + SUSPECTS)];
        let again = self.others[number].records(suspects);
        let (program, why) = match again {
            Err(again) => (suspects.get(again.after), again.why),
            Ok(_) => (None, format!("{}; not when it runs again", stopped.why)),
        };
        let finding = Finding {
            program: program.or(suspects.first()).unwrap_or(&programs[0]).clone(),
            step: None,
            ours: why,
            theirs: "goes on".to_owned(),
        };
        self.add(number, &finding, "it stops".to_owned(), found);
    }
}
