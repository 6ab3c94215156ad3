//! The suite: every packaged workload that measures something, under a name for each form of it.

use std::ffi::OsString;

/// A program to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What it is called in tables and files.
    pub name: String,
    /// The program and its arguments.
    pub program: Vec<OsString>,
}

/// A workload of the suite.
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// The command line; `{cpus}` and `{seconds}` are filled in.
    line: &'static str,
    /// What one operation is.
    pub about: &'static str,
}

/// The suite, in the order in which it is run.
pub const SUITE: &[Entry] = &[
    Entry {
        name: "page_fault1_threads",
        line: "page_fault1 -t {cpus} -s {seconds}",
        about: "a page of a fresh mapping is written to; threads",
    },
    Entry {
        name: "ebizzy_compat",
        line: "ebizzy -mTRp -t {cpus} -S {seconds}",
        about: "a page is mapped, touched and unmapped, among split mappings",
    },
    Entry {
        name: "ebizzy_true_random",
        line: "ebizzy -mTp --true-random -t {cpus} -S {seconds}",
        about: "the same with 1 to 128 pages",
    },
];

impl Entry {
    /// What is run.
    pub fn job(&self, cpus: u32, seconds: u32) -> Job {
        let fill = |word: &str| match word {
            "{cpus}" => cpus.to_string().into(),
            "{seconds}" => seconds.to_string().into(),
            word => word.into(),
        };
        Job {
            name: self.name.to_owned(),
            program: self.line.split(' ').map(fill).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SUITE;
    use crate::paths;

    #[test]
    fn every_entry_is_a_packaged_workload_with_a_name_of_its_own() {
        let packaged = paths::packaged();
        for entry in SUITE {
            let job = entry.job(3, 7);
            let program = job.program[0].to_str().unwrap();
            assert!(packaged.iter().any(|name| name == program), "{program}");
            assert!(job.program.iter().all(|word| !word.is_empty()));
            let same = SUITE.iter().filter(|other| other.name == entry.name);
            assert_eq!(same.count(), 1, "{}", entry.name);
        }
    }

    #[test]
    fn the_machine_is_filled_in() {
        let job = SUITE[0].job(3, 7);
        assert_eq!(job.program, ["page_fault1", "-t", "3", "-s", "7"]);
    }
}
