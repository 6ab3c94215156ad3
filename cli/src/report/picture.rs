//! `--svg`: the picture of a page of figures, drawn from its rows, so that page and picture agree.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::figures_page::{BENCH, COMPARE, FiguresTable, Row};

/// A bar: what is said of it, and the key of its row.
type Bar = (&'static str, &'static [&'static str]);

/// A group of bars on one scale.
struct Group {
    title: &'static str,
    table: &'static FiguresTable,
    /// The column of the value.
    column: usize,
    bars: &'static [Bar],
}

const GROUPS: &[Group] = &[
    Group {
        title: "Guest instructions of Linux 6.12 for one of Faultless, 1 CPU",
        table: &COMPARE,
        column: 7,
        bars: &[
            (
                "page fault, anonymous",
                &["page_fault1_threads", "linux-6.12", "1"],
            ),
            (
                "page fault, file, private",
                &["page_fault2_threads", "linux-6.12", "1"],
            ),
            (
                "page fault, file, shared",
                &["page_fault3_threads", "linux-6.12", "1"],
            ),
            (
                "ebizzy, a record",
                &["ebizzy_true_random", "linux-6.12", "1"],
            ),
            ("fork of 64 MiB", &["fork_large", "linux-6.12", "1"]),
            ("thread start and end", &["thread_storm", "linux-6.12", "1"]),
            ("mmap and munmap, 128 MiB", &["mmap1", "linux-6.12", "1"]),
            ("mremap, 64 MiB", &["mremap1", "linux-6.12", "1"]),
        ],
    },
    Group {
        title: "A thread on each of 16 CPUs maps, touches, unmaps in one address space: speed against one thread",
        table: &BENCH,
        column: 2,
        bars: &[
            ("classic: the mmap lock", &["churn_all_cpus_classic"]),
            ("vma-lock: the mapping's lock", &["churn_all_cpus_vma_lock"]),
            ("speculative: no lock", &["churn_all_cpus_speculative"]),
        ],
    },
];

const WIDTH: f64 = 760.0;
const LABELS: f64 = 230.0;
const BARS: f64 = WIDTH - LABELS - 70.0;
const LINE: f64 = 26.0;

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
        let value = |bar: &Bar| value_of(&rows, bar.1, group.column);
        let bars: Vec<_> = group
            .bars
            .iter()
            .filter_map(|bar| Some((bar.0, value(bar)?)))
            .collect();
        if !bars.is_empty() {
            y = add_group(&mut body, y, group.title, &bars);
        }
    }
    let height = y + 6.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    )
}

/// The value of a row, if the page has it.
fn value_of(rows: &[Row], key: &[&str], column: usize) -> Option<f64> {
    let is_named = |row: &&Row| {
        let cells = row.iter().map(|cell| cell.trim_matches('`'));
        key.iter().copied().eq(cells.take(key.len()))
    };
    let row = rows.iter().find(is_named)?;
    row.get(column)?.replace(',', "").parse().ok()
}

/// Adds a title and bars from `y` on; where the next group begins.
fn add_group(body: &mut String, y: f64, title: &str, bars: &[(&str, f64)]) -> f64 {
    let longest = bars.iter().fold(1.0, |most: f64, bar| most.max(bar.1));
    let x = |value: f64| LABELS + BARS * value / longest;
    let end = y + LINE * (bars.len() as f64 + 1.0);
    // A String takes everything.
    let _ = writeln!(
        body,
        "<text x=\"10\" y=\"{:.0}\" font-weight=\"bold\">{title}</text>",
        y + 16.0
    );
    for (number, (label, value)) in bars.iter().enumerate() {
        let top = y + LINE * (number as f64 + 1.0);
        let colour = if *value < 1.0 { "#b5651d" } else { "#2f6f9f" };
        let _ = writeln!(
            body,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{label}</text>\n\
             <rect x=\"{LABELS}\" y=\"{:.0}\" width=\"{:.1}\" height=\"16\" fill=\"{colour}\"/>\n\
             <text x=\"{:.1}\" y=\"{:.0}\">{value:.2}</text>",
            LABELS - 8.0,
            top + 17.0,
            top + 5.0,
            x(*value) - LABELS,
            x(*value) + 6.0,
            top + 17.0,
        );
    }
    let _ = writeln!(
        body,
        "<line x1=\"{:.1}\" y1=\"{:.0}\" x2=\"{:.1}\" y2=\"{end:.0}\" stroke=\"#888888\" \
         stroke-dasharray=\"3 3\"/>",
        x(1.0),
        y + LINE,
        x(1.0),
    );
    end + 14.0
}

#[cfg(test)]
mod tests {
    use super::picture;

    #[test]
    fn a_picture_has_the_rows_of_its_page() {
        let page = "<!-- compare: begin -->\n\n\
            | `mmap1` | linux-6.12 | 1 | a | b | 8,000 | 16,000 | 2.00 | 2 | 2 | x |\n\
            | `mremap1` | linux-6.12 | 2 | a | b | 8,000 | 16,000 | 9.00 | 2 | 2 | x |\n\n\
            <!-- compare: end -->\n";
        let picture = picture(page);
        assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
        assert!(picture.contains("mmap and munmap, 128 MiB") && picture.contains(">2.00<"));
        assert!(!picture.contains("mremap"), "with 2 CPUs");
        assert!(!picture.contains("classic"), "no such row");
    }
}
