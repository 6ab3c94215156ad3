//! Takes the comparisons of one program: runs it on all sides in turn, and judges the results.

use super::result::ratio;
use super::side::Shown;
use super::{CompareResult, Conditions, Job, Metric, Peer};
use crate::interrupt;
use crate::machine::End;

/// The runs of one side, up to the first that failed.
#[derive(Default)]
struct Runs {
    shown: Vec<Shown>,
    failure: Option<String>,
}

/// Runs `job` once on each side, `repeat` times, and compares our kernel with each peer. Calls `say` before
/// each run. After an interrupt, returns the comparisons that have complete pairs.
pub fn take(
    job: &Job,
    conditions: &Conditions,
    peers: &[Peer],
    repeat: u32,
    mut say: impl FnMut(String),
) -> Vec<CompareResult> {
    let mut ours = Runs::default();
    let mut theirs: Vec<_> = peers.iter().map(|_| Runs::default()).collect();
    for round in 1..=repeat {
        // In each round our kernel runs first, and the runs of a pair are close in time.
        let mut run = |runs: &mut Runs, peer: Option<&Peer>| {
            if runs.failure.is_some() || interrupt::is_requested() {
                return;
            }
            let system = peer.map_or("faultless", Peer::name);
            let rounds = if repeat > 1 {
                format!(", {round} of {repeat}")
            } else {
                String::new()
            };
            say(format!("{} in {system}{rounds}", job.name));
            runs.add(conditions.run(&job.program, peer, round));
        };
        run(&mut ours, None);
        for (peer, runs) in peers.iter().zip(&mut theirs) {
            run(runs, Some(peer));
        }
    }
    let pairs = peers.iter().zip(&theirs);
    let results = pairs.flat_map(|(peer, theirs)| {
        let whole = judge(job, conditions.cpus, peer, &ours, theirs);
        let steps = steps(&whole, &ours, theirs);
        if steps.is_empty() { vec![whole] } else { steps }
    });
    results
        .filter(|result| result.ratio.is_some() || !interrupt::is_requested())
        .collect()
}

impl Runs {
    fn add(&mut self, run: anyhow::Result<Shown>) {
        match run {
            Ok(shown) => match shown.end {
                End::Exited(_) | End::Signalled(_) => self.shown.push(shown),
                _ => self.failure = Some(shown.ending()),
            },
            Err(error) => self.failure = Some(format!("cannot be run: {error:#}")),
        }
    }

    /// How the side ended, in words; a failed run counts before the others.
    fn ending(&self) -> String {
        let bad = self.shown.iter().find(|shown| shown.end != End::Exited(0));
        match (&self.failure, bad.or(self.shown.first())) {
            (Some(failure), _) => failure.clone(),
            (None, Some(shown)) => shown.ending(),
            (None, None) => "was not run".to_owned(),
        }
    }
}

fn judge(job: &Job, cpus: u32, peer: &Peer, ours: &Runs, theirs: &Runs) -> CompareResult {
    let word = |word: &std::ffi::OsString| word.to_string_lossy().into_owned();
    let mut result = CompareResult {
        name: job.name.clone(),
        program: job.program.iter().map(word).collect(),
        peer: peer.name(),
        release: theirs.shown.iter().find_map(|shown| shown.release.clone()),
        version: peer.version().to_owned(),
        metric: None,
        cpus,
        swap: job.swap.map(|swap| swap.to_string()),
        ratio: None,
        low: None,
        high: None,
        ours: Vec::new(),
        theirs: Vec::new(),
        our_counts: ours
            .shown
            .last()
            .map_or_else(Default::default, |shown| shown.counts.clone()),
        their_counts: theirs
            .shown
            .last()
            .map_or_else(Default::default, |shown| shown.counts.clone()),
        error: difference(peer, ours, theirs),
    };
    if ours.shown.is_empty() {
        show_alone(&mut result, &theirs.shown);
        return result;
    }
    let pairs: Vec<_> = ours.shown.iter().zip(&theirs.shown).collect();
    if result.error.is_some() && ours.failure.is_none() && theirs.failure.is_none()
        || pairs.is_empty()
    {
        return result;
    }
    let per_op = pairs
        .iter()
        .map(|(ours, theirs)| Some((ours.per_op?, theirs.per_op?)));
    let per_op: Option<Vec<_>> = per_op.collect();
    result.metric = Some(Metric::of(cpus, per_op.is_some()));
    let figures = per_op.unwrap_or_else(|| {
        let whole = pairs
            .iter()
            .map(|(ours, theirs)| (ours.per_run, theirs.per_run));
        whole.collect()
    });
    (result.ours, result.theirs) = figures.into_iter().unzip();
    match ratio(&result.ours, &result.theirs) {
        Ok([median, low, high]) => {
            (result.ratio, result.low, result.high) = (Some(median), Some(low), Some(high));
        }
        Err(error) => result.error = Some(error.to_string()),
    }
    result
}

/// The comparisons of the program's steps, if it prints the same on both sides.
fn steps(whole: &CompareResult, ours: &Runs, theirs: &Runs) -> Vec<CompareResult> {
    let Some(first) = ours.shown.first().filter(|_| whole.error.is_none()) else {
        return Vec::new();
    };
    let names = |shown: &Shown| {
        shown
            .steps
            .iter()
            .map(|step| step.name.clone())
            .collect::<Vec<_>>()
    };
    let is_same = |runs: &Runs| runs.shown.iter().all(|shown| names(shown) == names(first));
    if !is_same(ours) || !is_same(theirs) {
        return Vec::new();
    }
    let of = |number: usize, runs: &Runs| {
        let times = runs
            .shown
            .iter()
            .map(|shown| shown.steps[number].nanoseconds);
        times.collect::<Vec<_>>()
    };
    let compare = |(number, name): (usize, &String)| {
        let mut result = CompareResult {
            name: format!("{}: {name}", whole.name),
            metric: Some(Metric::of(whole.cpus, true)),
            ours: of(number, ours),
            theirs: of(number, theirs),
            ..whole.clone()
        };
        match ratio(&result.ours, &result.theirs) {
            Ok([median, low, high]) => {
                (result.ratio, result.low, result.high) = (Some(median), Some(low), Some(high));
            }
            Err(_) => (result.ratio, result.low, result.high) = (None, None, None),
        }
        result
    };
    names(first).iter().enumerate().map(compare).collect()
}

/// Keeps the peer's figures where our kernel has none, as with swap: there is no ratio, but they say what is to be
/// reached.
fn show_alone(result: &mut CompareResult, theirs: &[Shown]) {
    let figures: Option<Vec<_>> = theirs.iter().map(|shown| shown.per_op).collect();
    if let Some(figures) = figures.filter(|figures| !figures.is_empty()) {
        result.metric = Some(Metric::of(result.cpus, true));
        result.theirs = figures;
    }
}

/// How the two sides differ, or how both failed.
fn difference(peer: &Peer, ours: &Runs, theirs: &Runs) -> Option<String> {
    let peer = peer.name();
    let ends = |runs: &Runs| {
        runs.shown
            .iter()
            .map(|shown| shown.end.clone())
            .collect::<Vec<_>>()
    };
    let failed = ours.failure.is_some() || theirs.failure.is_some();
    let (our_ends, their_ends) = (ends(ours), ends(theirs));
    let common = our_ends.len().min(their_ends.len());
    if !failed && our_ends[..common] == their_ends[..common] {
        let prints = |runs: &Runs| runs.shown.iter().all(|shown| shown.per_op.is_some());
        return (prints(ours) != prints(theirs)).then(|| {
            let side = if prints(ours) { "faultless" } else { peer };
            format!("prints a figure in {side} only")
        });
    }
    let (ours, theirs) = (ours.ending(), theirs.ending());
    if ours == theirs {
        return Some(format!("fails everywhere: {ours}"));
    }
    Some(format!("in faultless it {ours}; in {peer} it {theirs}"))
}

#[cfg(test)]
mod tests {
    use super::super::Series;
    use super::{CompareResult, Job, Metric, Peer, Runs, Shown, judge};
    use crate::machine::End;

    fn runs(ends: &[(End, Option<f64>)]) -> Runs {
        let mut runs = Runs::default();
        for (end, per_op) in ends {
            runs.add(Ok(Shown {
                end: end.clone(),
                per_op: *per_op,
                steps: Vec::new(),
                per_run: 1000.0,
                counts: Default::default(),
                release: None,
                remark: Some("what it said".to_owned()),
            }));
        }
        runs
    }

    fn judged(
        cpus: u32,
        ours: &[(End, Option<f64>)],
        theirs: &[(End, Option<f64>)],
    ) -> CompareResult {
        let job = Job {
            name: "job".to_owned(),
            program: vec!["job".into(), "-x".into()],
            from_cpus: 1,
            swap: None,
            memory: None,
            huge: None,
        };
        let peer = Peer::Linux {
            arch: crate::arch::Arch::X86_64,
            series: Series::V6_12,
            version: "6.12.1-1".to_owned(),
            init: Vec::new(),
        };
        judge(&job, cpus, &peer, &runs(ours), &runs(theirs))
    }

    #[test]
    fn pairs_are_compared_by_their_figure() {
        let ours = [(End::Exited(0), Some(100.0)), (End::Exited(0), Some(110.0))];
        let theirs = [(End::Exited(0), Some(200.0)), (End::Exited(0), Some(220.0))];
        let result = judged(2, &ours, &theirs);
        assert_eq!((result.ratio, result.error), (Some(2.0), None));
        assert_eq!(result.metric, Some(Metric::NanosecondsPerOp));
        assert_eq!((result.ours.len(), result.theirs.len()), (2, 2));
    }

    #[test]
    fn without_figures_whole_runs_are_compared() {
        let result = judged(1, &[(End::Exited(3), None)], &[(End::Exited(3), None)]);
        assert_eq!(result.metric, Some(Metric::InstructionsPerRun));
        assert_eq!((result.ratio, result.error), (Some(1.0), None));
    }

    #[test]
    fn another_end_on_one_side_is_an_error() {
        let result = judged(1, &[(End::Exited(1), None)], &[(End::Exited(0), Some(1.0))]);
        let error = result.error.unwrap();
        assert!(
            error.contains("in faultless it exits with 1 (what it said)"),
            "{error}"
        );
        assert!(error.contains("in linux-6.12 it ends well"), "{error}");
        assert_eq!(result.ratio, None);
        let result = judged(1, &[(End::Exited(0), Some(1.0))], &[(End::Exited(0), None)]);
        assert!(result.error.unwrap().contains("faultless only"));
    }

    #[test]
    fn a_peer_alone_keeps_its_figures() {
        let theirs = [(End::Exited(0), Some(28_100.0))];
        let result = judged(1, &[(End::Failed("no swap".to_owned()), None)], &theirs);
        assert_eq!((result.ratio, result.theirs), (None, vec![28_100.0]));
        assert_eq!(result.metric, Some(Metric::InstructionsPerOp));
        assert!(result.error.unwrap().contains("no swap"));
        let result = judged(1, &[(End::TimedOut, None)], &[(End::Exited(3), None)]);
        assert_eq!((result.metric, result.theirs), (None, Vec::new()));
    }

    #[test]
    fn a_machine_that_fails_keeps_the_pairs_before() {
        let well = (End::Exited(0), Some(100.0));
        let late = (End::TimedOut, None);
        let result = judged(
            2,
            &[well.clone(), well.clone()],
            &[well.clone(), late.clone()],
        );
        assert_eq!((result.ratio, result.ours.len()), (Some(1.0), 1));
        assert!(result.error.unwrap().contains("takes too long"));
        let result = judged(2, &[well], &[late]);
        assert_eq!((result.ratio, result.metric), (None, None));
        assert!(result.error.is_some());
    }
}
