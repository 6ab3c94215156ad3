//! Compares the records of two systems, and reports differences that are not deliberate.

use std::collections::BTreeMap;

use crate::differences::{Seen, explain, left_behind};
use crate::side::{Side, Stopped};
use crate::{Program, Record};

/// The most rounds in which operations are left out before the comparison gives up.
const MOST_LEFT_OUT: usize = 40;

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The program, without the operations that were left out.
    pub program: Program,
    /// The operation with different answers; none if the final states differ.
    pub step: Option<usize>,
    /// Our answer.
    pub ours: String,
    /// The other system's answer.
    pub theirs: String,
}

/// The result of comparing programs.
#[derive(Debug, Default)]
pub struct Judged {
    /// For each program, the difference found.
    pub findings: Vec<Option<Finding>>,
    /// How many operations were left out for each row of the table.
    pub left_out: BTreeMap<&'static str, u64>,
}

/// The result of comparing two records.
enum Look {
    Same,
    /// These operations cannot be compared, because of these rows.
    LeaveOut(Vec<(usize, &'static str)>),
    Different(Option<usize>, String, String),
}

impl Finding {
    /// Equal for findings that probably are one bug.
    pub fn signature(&self) -> String {
        let kind = match self.step {
            Some(step) => self.program.ops[step].kind().name,
            None => "the end",
        };
        let class = |text: &str| {
            let words: Vec<_> = text.split(' ').take(3).collect();
            match *words.as_slice() {
                ["errno", number, ..] => format!("errno {number}"),
                ["signal", number, "code"] => format!("signal {number}"),
                [first, ..] if self.step.is_none() => first
                    .chars()
                    .filter(|letter| !letter.is_ascii_hexdigit())
                    .collect(),
                _ => "a result".to_owned(),
            }
        };
        format!(
            "{kind}: {}, and there {}",
            class(&self.ours),
            class(&self.theirs)
        )
    }
}

/// Compares each program on both systems, the second of which is right.
///
/// # Errors
/// When one of them does not run all programs.
pub fn judge(
    programs: &[Program],
    ours: &mut dyn Side,
    theirs: &mut dyn Side,
) -> Result<Judged, Stopped> {
    let mut judged = Judged::default();
    judged.findings.resize(programs.len(), None);
    let mut open: Vec<(usize, Program)> = programs.iter().cloned().enumerate().collect();
    for _ in 0..MOST_LEFT_OUT {
        if open.is_empty() {
            break;
        }
        let all: Vec<Program> = open.iter().map(|(_, program)| program.clone()).collect();
        let (here, there) = both(ours, theirs, |side| side.records(&all))?;
        let mut again = Vec::new();
        for ((place, mut program), (here, there)) in open.into_iter().zip(here.iter().zip(&there)) {
            match look(&program, [ours.name(), theirs.name()], here, there) {
                Look::Same => {}
                Look::LeaveOut(steps) => {
                    for (step, row) in steps {
                        *judged.left_out.entry(row).or_default() += 1;
                        program.ops[step] = program.ops[step].left_out();
                    }
                    again.push((place, program));
                }
                Look::Different(step, ours, theirs) => {
                    judged.findings[place] = Some(Finding {
                        program,
                        step,
                        ours,
                        theirs,
                    });
                }
            }
        }
        open = again;
    }
    Ok(judged)
}

/// Queries both at the same time.
pub fn both<T: Send>(
    ours: &mut dyn Side,
    theirs: &mut dyn Side,
    ask: impl Fn(&mut dyn Side) -> Result<T, Stopped> + Sync,
) -> Result<(T, T), Stopped> {
    let ask = |side: &mut dyn Side| {
        let name = side.name();
        ask(side).map_err(|stopped| Stopped {
            why: format!("{name}: {}", stopped.why),
            ..stopped
        })
    };
    std::thread::scope(|scope| {
        let there = scope.spawn(|| ask(theirs));
        let here = ask(ours);
        let there = there.join().map_err(|_| Stopped {
            after: 0,
            why: "a thread of this command failed".into(),
        })?;
        Ok((here?, there?))
    })
}

fn look(program: &Program, systems: [&str; 2], here: &Record, there: &Record) -> Look {
    if here == there {
        return Look::Same;
    }
    let mut cause = None;
    let mut left_out = Vec::new();
    for (step, op) in program.ops.iter().enumerate() {
        let (ours, theirs) = (here.answer(step), there.answer(step));
        let is_same = ours == theirs;
        let (ours, theirs) = (ours.unwrap_or("nothing"), theirs.unwrap_or("nothing"));
        let seen = Seen {
            op,
            program,
            systems,
            ours,
            theirs,
        };
        if is_same {
            let row = cause.is_none().then(|| left_behind(&seen)).flatten();
            cause = cause.or(row.map(|row| (step, row.name)));
            continue;
        }
        if let Some(row) = explain(&seen) {
            left_out.push((step, row.name));
            // A query changes nothing for later operations.
            if op.kind().name == "mincore" {
                continue;
            }
            return Look::LeaveOut(left_out);
        }
        left_out.extend(cause);
        if !left_out.is_empty() {
            return Look::LeaveOut(left_out);
        }
        return Look::Different(Some(step), ours.to_owned(), theirs.to_owned());
    }
    left_out.extend(cause);
    if !left_out.is_empty() {
        return Look::LeaveOut(left_out);
    }
    let lines = here.ends().zip(there.ends());
    let mut different = lines.filter(|(ours, theirs)| ours != theirs);
    let (ours, theirs) = match different.next() {
        Some((ours, theirs)) => (ours.to_owned(), theirs.to_owned()),
        None => (
            format!("{} lines, status {}", here.ends().count(), here.status),
            format!("{} lines, status {}", there.ends().count(), there.status),
        ),
    };
    Look::Different(None, ours, theirs)
}
