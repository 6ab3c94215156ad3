//! Finds the figure that a program prints, in its output as it passes through.
//!
//! Known lines: `N records/s` (ebizzy), `average:N` (page_fault1) and `N ns/op` (the workloads that
//! repeat one operation). The last one counts.
//!
//! A program may also print the time of each of several steps: `NAME N ns/page`, as `kvm_cost` does, or `NAME: Ns`, as
//! Linux's own KVM tests do.

use serde::Serialize;

/// Bytes of a line that are kept; the rest of a longer one is ignored.
const LONGEST: usize = 256;

/// One figure of a program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What it is: `records/s`, `average` or `ns/op`.
    pub name: &'static str,
    /// How much.
    pub value: f64,
}

/// The time of a step of a program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// What the program calls it; a number follows if it has several of the same name.
    pub name: String,
    /// Nanoseconds, for a page or for the whole step.
    pub nanoseconds: f64,
}

/// The figures in a program's output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The last one of the whole program.
    pub figure: Option<Figure>,
    /// Those of its steps, in order.
    pub steps: Vec<Step>,
}

/// Reads output piece by piece.
#[derive(Debug, Default)]
pub struct FigureFinder {
    line: Vec<u8>,
    found: Figures,
}

impl Figure {
    /// Nanoseconds of the machine's clock for one record, page or operation.
    pub fn nanoseconds(&self) -> f64 {
        match self.name {
            "ns/op" => self.value,
            _ => 1e9 / self.value,
        }
    }

    /// The approximate number of records, pages or operations in a run of `seconds`. Only a rate gives one: the
    /// program is assumed to keep it up for the whole run.
    pub fn operations(&self, seconds: f64) -> Option<f64> {
        let count = self.value * seconds;
        (self.name != "ns/op" && count.is_finite() && count > 0.0).then_some(count)
    }
}

impl FigureFinder {
    /// Reads the next piece of output.
    pub fn feed(&mut self, piece: &[u8]) {
        for &byte in piece {
            if byte == b'\n' {
                self.end_of_line();
            } else if self.line.len() < LONGEST {
                self.line.push(byte);
            }
        }
    }

    /// The figures, once all output has been read.
    pub fn finish(mut self) -> Figures {
        self.end_of_line();
        self.found
    }

    fn end_of_line(&mut self) {
        let line = std::str::from_utf8(&self.line).unwrap_or_default().trim();
        if let Some(figure) = parse(line) {
            self.found.figure = Some(figure);
        } else if let Some((name, nanoseconds)) = parse_step(line) {
            let steps = &mut self.found.steps;
            let same = |step: &&Step| step.name.split(" #").next() == Some(name);
            let name = match steps.iter().filter(same).count() {
                0 => name.to_owned(),
                earlier => format!("{name} #{}", earlier + 1),
            };
            steps.push(Step { name, nanoseconds });
        }
        self.line.clear();
    }
}

fn parse(line: &str) -> Option<Figure> {
    if let Some(number) = line.strip_suffix(" records/s") {
        return Some(Figure {
            name: "records/s",
            value: number.parse().ok()?,
        });
    }
    if let Some(number) = line.strip_suffix(" ns/op") {
        return Some(Figure {
            name: "ns/op",
            value: number.parse().ok()?,
        });
    }
    let number = line.strip_prefix("average:")?;
    Some(Figure {
        name: "average",
        value: number.trim().parse().ok()?,
    })
}

/// The name and the time of a step.
fn parse_step(line: &str) -> Option<(&str, f64)> {
    let is_name = |name: &str| name.starts_with(|first: char| first.is_ascii_alphabetic());
    // Counts may follow.
    if let Some((before, _)) = line.split_once(" ns/page") {
        let (name, number) = before.rsplit_once(' ')?;
        let name = name.trim();
        return is_name(name).then_some((name, number.parse().ok()?));
    }
    let (name, seconds) = line.strip_suffix('s')?.rsplit_once(": ")?;
    let seconds: f64 = seconds.contains('.').then(|| seconds.parse().ok())??;
    is_name(name).then_some((name, seconds * 1e9))
}

#[cfg(test)]
mod tests {
    use super::{Figure, FigureFinder, Step};

    #[test]
    fn only_a_rate_says_how_many_there_were() {
        let figure = |name| Figure { name, value: 250.0 };
        assert_eq!(figure("records/s").operations(2.0), Some(500.0));
        assert_eq!(figure("average").operations(4.0), Some(1000.0));
        assert_eq!(figure("ns/op").operations(2.0), None);
        assert_eq!(figure("records/s").operations(0.0), None);
    }

    fn find(pieces: &[&str]) -> Option<Figure> {
        let mut finder = FigureFinder::default();
        pieces
            .iter()
            .for_each(|piece| finder.feed(piece.as_bytes()));
        finder.finish().figure
    }

    #[test]
    fn finds_the_steps_of_a_program() {
        let mut finder = FigureFinder::default();
        finder.feed(b"an entry and exit                              2985.0 ns/page\n");
        finder.feed(b"clear dirty log (write-protects)    177.1 ns/page  pf_taken 3\n");
        finder.feed(b"an entry and exit                              2984.0 ns/page\n");
        finder.feed(b"  12 of 16384 pages were dirty\nPopulate memory time: 0.500000000s\n");
        finder.feed(b"guest physical test memory: [0x7fc0000000, 0x7fffffd000)\nTesting: Xs\n");
        let figures = finder.finish();
        let step = |name: &str, nanoseconds| Step {
            name: name.to_owned(),
            nanoseconds,
        };
        let expected = [
            step("an entry and exit", 2985.0),
            step("clear dirty log (write-protects)", 177.1),
            step("an entry and exit #2", 2984.0),
            step("Populate memory time", 5e8),
        ];
        assert_eq!((figures.figure, figures.steps), (None, expected.to_vec()));
    }

    #[test]
    fn finds_a_line_that_comes_in_pieces() {
        let figure = find(&["ebizzy 0.3\n123", "45 reco", "rds/s\nreal 2.00 s\n"]).unwrap();
        assert_eq!(
            figure,
            Figure {
                name: "records/s",
                value: 12345.0
            }
        );
    }

    #[test]
    fn finds_a_last_line_without_an_end() {
        let figure = find(&["min:1 max:2 total:3\naverage:77"]).unwrap();
        assert_eq!(
            figure,
            Figure {
                name: "average",
                value: 77.0
            }
        );
    }

    #[test]
    fn tells_the_time_of_one_operation() {
        let figure = find(&["average:4000\n250000.5 ns/op\n"]).unwrap();
        assert_eq!((figure.name, figure.nanoseconds()), ("ns/op", 250_000.5));
        assert_eq!(find(&["average:4000\n"]).unwrap().nanoseconds(), 250_000.0);
    }

    #[test]
    fn finds_nothing_in_other_output() {
        assert_eq!(find(&["many records/s\naverage:\n"]), None);
        assert_eq!(find(&["x".repeat(10_000).as_str()]), None);
    }
}
