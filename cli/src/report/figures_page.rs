//! `--markdown`: a page of figures, so that no number is copied by hand.
//!
//! A page has a table for each command. A command replaces the rows of the figures that it has taken and keeps all
//! others; each row says at which commit it was taken. What is outside of the tables is text, and stays.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// One command's table.
pub struct FiguresTable {
    /// Its name in the page.
    pub name: &'static str,
    /// The titles of its columns.
    pub header: &'static [&'static str],
    /// How many leading columns name a figure.
    pub keys: usize,
}

/// The table of `bench`.
pub const BENCH: FiguresTable = FiguresTable {
    name: "bench",
    header: &[
        "figure",
        "what",
        "median",
        "10 %",
        "90 %",
        "unit",
        "better",
        "host CPUs",
        "commit",
    ],
    keys: 1,
};

/// The table of `compare`.
pub const COMPARE: FiguresTable = FiguresTable {
    name: "compare",
    header: &[
        "workload", "against", "CPUs", "what", "metric", "ours", "theirs", "ratio", "10 %", "90 %",
        "commit",
    ],
    keys: 3,
};

/// A row: a cell for each column.
pub type Row = Vec<String>;

impl FiguresTable {
    /// Puts `rows` into the page, in the order of `names`, which are first cells.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn update(&self, path: &PathBuf, rows: Vec<Row>, names: &[&str]) -> Result<()> {
        let page = match fs::read_to_string(path) {
            Ok(page) => page,
            Err(error) if error.kind() == io::ErrorKind::NotFound => "# Figures\n".to_owned(),
            Err(error) => return Err(error).with_context(|| cannot("read", path)),
        };
        fs::write(path, self.merge(&page, rows, names)).with_context(|| cannot("write", path))
    }

    /// The rows of this table that a page has.
    pub fn rows(&self, page: &str) -> Vec<Row> {
        let table = self.parts(page).map_or("", |(_, table, _)| table);
        table.lines().filter_map(|line| self.row(line)).collect()
    }

    /// What is before the table, in it, and behind it.
    fn parts<'a>(&self, page: &'a str) -> Option<(&'a str, &'a str, &'a str)> {
        let (before, rest) = page.split_once(&self.marker("begin"))?;
        let (table, after) = rest.split_once(&self.marker("end"))?;
        Some((before, table, after))
    }

    fn merge(&self, page: &str, rows: Vec<Row>, names: &[&str]) -> String {
        let (begin, end) = (self.marker("begin"), self.marker("end"));
        let (before, after) = match self.parts(page) {
            Some((before, _, after)) => (before.to_owned(), after),
            None => (format!("{page}\n"), "\n"),
        };
        let mut all = self.rows(page);
        for row in rows {
            match all
                .iter_mut()
                .find(|old| old[..self.keys] == row[..self.keys])
            {
                Some(old) => *old = row,
                None => all.push(row),
            }
        }
        for commit in all.iter_mut().filter_map(|row| row.last_mut()) {
            // As git abbreviates it.
            *commit = commit.chars().take(7).collect();
        }
        let place = |row: &Row| {
            names
                .iter()
                .position(|name| *name == row[0].trim_matches('`'))
        };
        all.sort_by_key(|row| place(row).unwrap_or(names.len()));
        let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
        let mut table = line(self.header.to_vec()) + &line(vec!["---"; self.header.len()]);
        for row in &all {
            table += &line(row.iter().map(String::as_str).collect());
        }
        format!("{before}{begin}\n\n{table}\n{end}{after}")
    }

    fn marker(&self, what: &str) -> String {
        format!("<!-- {}: {what} -->", self.name)
    }

    /// The cells of a line that is a row of this table.
    fn row(&self, line: &str) -> Option<Row> {
        let inner = line.strip_prefix("| ")?.strip_suffix(" |")?;
        let cells: Row = inner.split(" | ").map(str::to_owned).collect();
        let is_row = cells.len() == self.header.len()
            && cells[0] != self.header[0]
            && !cells[0].starts_with("---");
        is_row.then_some(cells)
    }
}

fn cannot(what: &str, path: &Path) -> String {
    format!("cannot {what} {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::{FiguresTable, Row};

    const TABLE: FiguresTable = FiguresTable {
        name: "bench",
        header: &["figure", "value", "commit"],
        keys: 1,
    };

    fn row(cells: [&str; 3]) -> Row {
        cells.map(str::to_owned).to_vec()
    }

    #[test]
    fn rows_are_replaced_and_others_stay() {
        let first = TABLE.merge(
            "# Figures\n\nText.\n",
            vec![row(["b", "1", "x"]), row(["a", "2", "x"])],
            &["a", "b"],
        );
        let expected = "# Figures\n\nText.\n\n<!-- bench: begin -->\n\n| figure | value | commit |\n\
                        | --- | --- | --- |\n| a | 2 | x |\n| b | 1 | x |\n\n<!-- bench: end -->\n";
        assert_eq!(first, expected);
        let second = TABLE.merge(&first, vec![row(["b", "3", "y"])], &["a", "b"]);
        assert_eq!(second, expected.replace("| b | 1 | x |", "| b | 3 | y |"));
        assert_eq!(TABLE.merge(&second, Vec::new(), &["a", "b"]), second);
    }

    #[test]
    fn a_page_keeps_its_text_and_other_tables() {
        let other = FiguresTable {
            name: "compare",
            ..TABLE
        };
        let page = TABLE.merge("Before.\n", vec![row(["a", "1", "x"])], &["a"]) + "After.\n";
        let both = other.merge(&page, vec![row(["c", "5", "y"])], &["c"]);
        assert!(both.starts_with(&page));
        let again = TABLE.merge(&both, vec![row(["a", "9", "z"])], &["a"]);
        assert_eq!(again, both.replace("| a | 1 | x |", "| a | 9 | z |"));
    }
}
