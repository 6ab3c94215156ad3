//! Measures which calls take longer because a process has more memory.
//!
//! The workload `growth` times every call in a process that has almost nothing, and again with 256 MiB in
//! memory and 10,000 mappings. It runs on one CPU with a clock that counts instructions, so that the figures
//! repeat exactly.

use anyhow::{Context as _, Result, ensure};

use super::kernel::output_of;
use super::{Part, Samples};
use crate::arch::Arch;

/// The limit of a call's cost with much memory, divided by its cost with little.
const MOST: f64 = 1.5;

/// Calls that have to take more, and why.
const REASONS: &[(&str, &str)] = &[
    (
        "fork",
        "copies page tables and the tree, and the child gives them back",
    ),
    ("fork_exec", "the same"),
    ("maps", "a line for each mapping"),
    (
        "smaps",
        "a record for each mapping, and a look at each page in it",
    ),
    ("smaps_rollup", "a look at each page"),
    ("clear_soft_dirty", "lowers each page's entry"),
    ("clear_accessed", "the same"),
    ("mlockall", "changes each mapping, and brings each page"),
];

/// A call, and the instructions that it takes with little memory and with much.
#[derive(Debug, PartialEq)]
struct Call<'a> {
    name: &'a str,
    small: f64,
    large: f64,
}

impl<'a> Call<'a> {
    /// Parses a line that the workload has printed.
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        let [small, large] = [words.next()?.parse().ok()?, words.next()?.parse().ok()?];
        Some(Self { name, small, large }).filter(|_| words.next().is_none())
    }

    fn ratio(&self) -> f64 {
        self.large / self.small.max(1.0)
    }

    /// Why it may take more.
    fn reason(&self) -> Option<&'static str> {
        let mut reasons = REASONS.iter();
        let (_, reason) = reasons.find(|(name, _)| *name == self.name)?;
        Some(reason)
    }

    fn part(&self) -> Part {
        let remark = match self.reason() {
            Some(reason) => reason,
            None if self.ratio() > MOST => "grows, and should not",
            None => "",
        };
        Part {
            name: self.name.to_owned(),
            value: self.ratio(),
            from: self.small,
            to: self.large,
            remark,
        }
    }
}

/// The worst ratio of those calls that have no reason to take longer.
pub fn growth(arch: Arch) -> Result<Samples> {
    let output = output_of(arch, &["growth"])?;
    let calls: Vec<_> = output.lines().filter_map(Call::parse).collect();
    ensure!(
        !calls.is_empty(),
        "the workload has printed nothing that is known"
    );
    let unreasoned = calls.iter().filter(|call| call.reason().is_none());
    let worst = unreasoned
        .map(Call::ratio)
        .max_by(f64::total_cmp)
        .context("every call has a reason to take longer")?;
    let parts = calls.iter().map(Call::part).collect();
    Ok(Samples::new(vec![worst])?.with_parts(parts))
}

#[cfg(test)]
mod tests {
    use super::Call;

    #[test]
    fn lines_are_calls() {
        let call = Call::parse("statm 500 1000").unwrap();
        assert_eq!((call.name, call.ratio()), ("statm", 2.0));
        assert_eq!(call.part().remark, "grows, and should not");
        assert_eq!(
            Call::parse("fork 1 1000").unwrap().reason(),
            super::REASONS[0].1.into()
        );
        for line in ["", "statm", "statm 1", "statm 1 2 3", "a line of text"] {
            assert_eq!(Call::parse(line), None);
        }
    }
}
