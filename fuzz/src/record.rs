//! The result of a program.

use crate::executor::hash_of;

/// The record of a program on one system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Lines `NUMBER ANSWER` of each process, then its final state.
    pub text: String,
    /// 0, or the wait status of the program's first process if it failed.
    pub status: i32,
}

impl Record {
    /// The hash of the record.
    pub fn digest(&self) -> u64 {
        hash_of(self.text.as_bytes(), self.status)
    }

    /// The answer of operation `number`.
    pub fn answer(&self, number: usize) -> Option<&str> {
        let prefix = format!("{number} ");
        let mut is_answers = true;
        self.text.lines().find_map(|line| {
            if line.starts_with("process ") {
                is_answers = false;
            } else if !is_answers && is_answer(line) {
                is_answers = true;
            }
            if is_answers {
                line.strip_prefix(&prefix)
            } else {
                None
            }
        })
    }

    /// The final states of the processes.
    pub fn ends(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter(|line| !is_answer(line))
    }

    /// Parses the output of an executor in detail mode.
    pub fn parse_all(text: &str) -> Vec<Record> {
        let mut records = Vec::new();
        let mut lines = String::new();
        for line in text.lines() {
            if let Some(status) = line.strip_prefix("end ") {
                records.push(Record {
                    text: std::mem::take(&mut lines),
                    status: status.parse().unwrap_or(i32::MAX),
                });
            } else {
                lines.push_str(line);
                lines.push('\n');
            }
        }
        records
    }
}

/// Answers begin with a number; lines of the final state begin with an address or a word.
fn is_answer(line: &str) -> bool {
    let first = line.split(' ').next().unwrap_or_default();
    !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::Record;

    #[test]
    fn answers_are_found() {
        let text =
            "0 ok\n2 errno 5\nprocess 0\n@0 @1 rw-p\n@0: 0=5\n1 late\nprocess 1\nend 0\nend 9\n";
        let records = Record::parse_all(text);
        assert_eq!(records.len(), 2);
        assert_eq!(records[0].answer(0), Some("ok"));
        assert_eq!(records[0].answer(1), Some("late"));
        assert_eq!(records[0].answer(2), Some("errno 5"));
        assert_eq!(records[0].answer(3), None);
        assert_eq!(records[0].ends().count(), 4);
        assert_eq!(records[1].status, 9);
    }
}
