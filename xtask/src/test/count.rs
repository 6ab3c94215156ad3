//! The numbers of passed and failed tests, parsed from the output of `cargo test`.

use std::ops::AddAssign;

/// A number of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Those that passed.
    pub passed: u32,
    /// Those that failed.
    pub failed: u32,
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl Count {
    /// The tests of one command: those it reports, or the command itself if it reports none.
    ///
    /// A command that fails although none of its tests does (it does not build, it is killed)
    /// counts as one more failure.
    pub fn of(output: &str, success: bool) -> Self {
        let mut count = Count::default();
        for line in output.lines() {
            if let Some(results) = line.trim().strip_prefix("test result: ") {
                count.passed += number_before(results, " passed");
                count.failed += number_before(results, " failed");
            }
        }
        if !success && count.failed == 0 {
            count.failed = 1;
        }
        if success && count == Count::default() {
            count.passed = 1;
        }
        count
    }
}

/// The 3 of `… 3 failed; …`.
fn number_before(text: &str, word: &str) -> u32 {
    let Some(end) = text.find(word) else { return 0 };
    let start = text[..end].rfind(' ').map_or(0, |space| space + 1);
    text[start..end].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::Count;

    const TWO: &str = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured\n\
                       test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured\n";

    #[test]
    fn adds_up_what_cargo_reports() {
        assert_eq!(
            Count::of(TWO, false),
            Count {
                passed: 15,
                failed: 2
            }
        );
    }

    #[test]
    fn a_command_without_tests_is_one() {
        assert_eq!(
            Count::of("", true),
            Count {
                passed: 1,
                failed: 0
            }
        );
        assert_eq!(
            Count::of("error: no", false),
            Count {
                passed: 0,
                failed: 1
            }
        );
    }

    #[test]
    fn a_failure_outside_the_tests_counts() {
        let line = "test result: ok. 12 passed; 0 failed;";
        assert_eq!(
            Count::of(line, false),
            Count {
                passed: 12,
                failed: 1
            }
        );
    }
}
