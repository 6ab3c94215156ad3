//! `--svg`: the picture of a page of figures, drawn from its rows, so that page and picture agree.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::figures_page::{BENCH, COMPARE, FiguresTable, Row};
use crate::table::grouped;

/// A bar: what is said of it, the key of its row, and the column of its value.
type Bar = (&'static str, &'static [&'static str], usize);

/// What the values of a group are.
#[derive(Clone, Copy, PartialEq)]
enum Values {
    /// More than 1 is better. A line marks 1.
    Ratios,
    /// Costs, of which the picture shows this part. All are of one commit, or the group is left out; the last is ours.
    Costs(f64),
}

/// A group of bars on one scale.
struct Group {
    title: &'static str,
    table: &'static FiguresTable,
    values: Values,
    bars: &'static [Bar],
}

/// Columns of the tables.
const OURS: usize = 5;
const THEIRS: usize = 6;
const RATIO: usize = 7;
const MEDIAN: usize = 2;

/// A workload on Linux and under the three policies, which one command compares.
macro_rules! four {
    ($workload:literal, $cpus:literal) => {
        &[
            ("Linux 6.12", &[$workload, "linux-6.12", $cpus], THEIRS),
            ("classic", &[$workload, "classic", $cpus], THEIRS),
            ("vma-lock", &[$workload, "vma-lock", $cpus], THEIRS),
            ("speculative", &[$workload, "vma-lock", $cpus], OURS),
        ]
    };
}

const GROUPS: &[Group] = &[
    Group {
        title: "ebizzy: guest instructions for a record, 1 CPU (less is better)",
        table: &COMPARE,
        values: Values::Costs(1.0),
        bars: four!("ebizzy_compat", "1"),
    },
    Group {
        title: "Page fault in anonymous memory: guest instructions, 1 CPU (less is better)",
        table: &COMPARE,
        values: Values::Costs(1.0),
        bars: four!("page_fault1_threads", "1"),
    },
    Group {
        title: "Longest access of another thread during a fork of 1 GiB: ms, emulated, 2 CPUs (less is better)",
        table: &COMPARE,
        values: Values::Costs(1e-6),
        bars: four!("fork_stall", "2"),
    },
    Group {
        title: "Other operations: guest instructions of Linux 6.12 for one of Faultless, 1 CPU (more is better)",
        table: &COMPARE,
        values: Values::Ratios,
        bars: &[
            (
                "page fault, file, private",
                &["page_fault2_threads", "linux-6.12", "1"],
                RATIO,
            ),
            (
                "page fault, file, shared",
                &["page_fault3_threads", "linux-6.12", "1"],
                RATIO,
            ),
            ("fork of 64 MiB", &["fork_large", "linux-6.12", "1"], RATIO),
            (
                "thread start and end",
                &["thread_storm", "linux-6.12", "1"],
                RATIO,
            ),
            (
                "mmap and munmap, 128 MiB",
                &["mmap1", "linux-6.12", "1"],
                RATIO,
            ),
            ("mremap, 64 MiB", &["mremap1", "linux-6.12", "1"], RATIO),
        ],
    },
    Group {
        title: "A thread on each of 16 CPUs maps, touches, unmaps in one address space: speed against one thread",
        table: &BENCH,
        values: Values::Ratios,
        bars: &[
            ("classic", &["churn_all_cpus_classic"], MEDIAN),
            ("vma-lock", &["churn_all_cpus_vma_lock"], MEDIAN),
            ("speculative", &["churn_all_cpus_speculative"], MEDIAN),
        ],
    },
];

const WIDTH: f64 = 760.0;
const LABELS: f64 = 230.0;
const BARS: f64 = WIDTH - LABELS - 70.0;
const LINE: f64 = 26.0;
const OUR: &str = "#2f6f9f";
const OTHER: &str = "#9aa5ae";
const WORSE: &str = "#b5651d";

/// Draws the picture of a page into a file.
///
/// # Errors
/// A file cannot be read or written.
pub fn draw(page: &Path, svg: &Path) -> Result<()> {
    let text =
        fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    fs::write(svg, picture(&text)).with_context(|| format!("cannot write {}", svg.display()))
}

fn picture(page: &str) -> String {
    let (mut body, mut y) = (String::new(), 10.0);
    for group in GROUPS {
        let rows = group.table.rows(page);
        let found: Vec<_> = group
            .bars
            .iter()
            .filter_map(|bar| Some((bar, find(&rows, bar.1)?)))
            .collect();
        let first = found.first().and_then(|(_, row)| row.last());
        let is_one_run = found.iter().all(|(_, row)| row.last() == first);
        let is_whole = is_one_run && found.len() == group.bars.len();
        if group.values != Values::Ratios && !is_whole {
            continue;
        }
        let bars = found.iter().filter_map(|(bar, row)| {
            let value: f64 = row.get(bar.2)?.replace(',', "").parse().ok()?;
            Some((bar.0, value))
        });
        let bars: Vec<_> = bars.collect();
        if !bars.is_empty() {
            y = add_group(&mut body, y, group, &bars);
        }
    }
    let height = y + 6.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    )
}

/// The row with this key, if the page has it.
fn find<'a>(rows: &'a [Row], key: &[&str]) -> Option<&'a Row> {
    rows.iter().find(|row| {
        let cells = row.iter().map(|cell| cell.trim_matches('`'));
        key.iter().copied().eq(cells.take(key.len()))
    })
}

/// Adds a title and bars from `y` on; where the next group begins.
fn add_group(body: &mut String, y: f64, group: &Group, bars: &[(&str, f64)]) -> f64 {
    let least = if group.values == Values::Ratios {
        1.0
    } else {
        0.0
    };
    let longest = bars.iter().fold(least, |most: f64, bar| most.max(bar.1));
    let x = |value: f64| LABELS + BARS * value / longest;
    let end = y + LINE * (bars.len() as f64 + 1.0);
    // A String takes everything.
    let _ = writeln!(
        body,
        "<text x=\"10\" y=\"{:.0}\" font-weight=\"bold\">{}</text>",
        y + 16.0,
        group.title
    );
    for (number, &(label, value)) in bars.iter().enumerate() {
        let top = y + LINE * (number as f64 + 1.0);
        let (colour, shown) = match group.values {
            Values::Ratios if value < 1.0 => (WORSE, format!("{value:.2}")),
            Values::Ratios => (OUR, format!("{value:.2}")),
            Values::Costs(part) => {
                let colour = if number + 1 == bars.len() { OUR } else { OTHER };
                (colour, cost(value * part))
            }
        };
        let _ = writeln!(
            body,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{label}</text>\n\
             <rect x=\"{LABELS}\" y=\"{:.0}\" width=\"{:.1}\" height=\"16\" fill=\"{colour}\"/>\n\
             <text x=\"{:.1}\" y=\"{:.0}\">{shown}</text>",
            LABELS - 8.0,
            top + 17.0,
            top + 5.0,
            x(value) - LABELS,
            x(value) + 6.0,
            top + 17.0,
        );
    }
    if group.values == Values::Ratios {
        let _ = writeln!(
            body,
            "<line x1=\"{:.1}\" y1=\"{:.0}\" x2=\"{:.1}\" y2=\"{end:.0}\" stroke=\"#888888\" \
             stroke-dasharray=\"3 3\"/>",
            x(1.0),
            y + LINE,
            x(1.0),
        );
    }
    end + 14.0
}

/// Three digits of a small number, and all of a large one.
fn cost(value: f64) -> String {
    match value {
        100.0.. => grouped(value.round() as u64),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::picture;

    fn page(rows: &str) -> String {
        format!("<!-- compare: begin -->\n\n{rows}\n<!-- compare: end -->\n")
    }

    #[test]
    fn a_picture_has_the_rows_of_its_page() {
        let page = page(
            "| `mmap1` | linux-6.12 | 1 | a | b | 8,000 | 16,000 | 2.00 | 2 | 2 | x |\n\
             | `mremap1` | linux-6.12 | 2 | a | b | 8,000 | 16,000 | 9.00 | 2 | 2 | x |\n",
        );
        let picture = picture(&page);
        assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
        assert!(picture.contains("mmap and munmap, 128 MiB") && picture.contains(">2.00<"));
        assert!(!picture.contains("mremap"), "with 2 CPUs");
        assert!(!picture.contains("classic"), "no such row");
    }

    /// Costs of two runs are not comparable.
    #[test]
    fn costs_are_those_of_one_commit() {
        let rows = |commit: &str| {
            page(&format!(
                "| `fork_stall` | linux-6.12 | 2 | a | b | 2,000,000 | 70,100,000 | 2 | 2 | 2 | x |\n\
                 | `fork_stall` | classic | 2 | a | b | 2,000,000 | 60,000,000 | 2 | 2 | 2 | x |\n\
                 | `fork_stall` | vma-lock | 2 | a | b | 2,000,000 | 5,000,000 | 2 | 2 | 2 | {commit} |\n"
            ))
        };
        let whole = picture(&rows("x"));
        assert!(
            [">70.1<", ">60.0<", ">5.00<", ">2.00<"]
                .iter()
                .all(|value| whole.contains(value))
        );
        assert!(!picture(&rows("y")).contains("fork"));
    }
}
