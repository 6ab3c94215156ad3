//! Conditions on events: `duration > 10us && (cpu == 1 || kind == copy)`.
//!
//! `~` compares words with wildcards. A comparison of a field that an event does not have is false.
//!
//! `token` splits the text, `parse` builds the condition, and this file evaluates it.

mod parse;
mod token;

use std::cmp::Ordering;

use anyhow::Result;

use super::seen::{Field, Seen, Value};
use crate::select::fits;

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// One of them holds.
    Either(Vec<Filter>),
    /// All of them hold.
    Both(Vec<Filter>),
    /// It does not hold.
    Not(Box<Filter>),
    /// A field compares so with a number.
    Number(Field, Compare, u64),
    /// A field compares so with a word.
    Text(Field, Compare, String),
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// `==`
    Equal,
    /// `!=`
    Different,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
    /// `~`
    Fits,
}

impl Filter {
    /// Reads a condition.
    pub fn parse(text: &str) -> Result<Self> {
        parse::condition(text)
    }

    /// Whether it holds for an event.
    pub fn holds(&self, seen: &Seen) -> bool {
        match self {
            Filter::Either(filters) => filters.iter().any(|filter| filter.holds(seen)),
            Filter::Both(filters) => filters.iter().all(|filter| filter.holds(seen)),
            Filter::Not(filter) => !filter.holds(seen),
            Filter::Number(field, compare, number) => match seen.value(*field) {
                Some(Value::Number(value)) => compare.holds(value.cmp(number)),
                _ => false,
            },
            Filter::Text(field, compare, text) => match (seen.value(*field), compare) {
                (Some(Value::Text(value)), Compare::Fits) => fits(text, value),
                (Some(Value::Text(value)), compare) => compare.holds(value.cmp(text)),
                _ => false,
            },
        }
    }
}

impl Compare {
    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Compare::Equal => ordering.is_eq(),
            Compare::Different => ordering.is_ne(),
            Compare::Less => ordering.is_lt(),
            Compare::AtMost => ordering.is_le(),
            Compare::More => ordering.is_gt(),
            Compare::AtLeast => ordering.is_ge(),
            Compare::Fits => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Filter, Seen};
    use faultless_trace::{Event, How, Kind, Reason, Switch};

    fn fault() -> Seen {
        let mut thread = Switch::idle();
        (thread.process, thread.thread) = (100, 105);
        thread.name[..6].copy_from_slice(b"worker");
        Seen {
            event: Event::fault(
                500,
                2500,
                0x7f00_0000_1000,
                How::Copy,
                false,
                Reason::PteLock,
            ),
            cpu: 1,
            thread: Some(thread),
        }
    }

    fn holds(text: &str) -> bool {
        Filter::parse(text).unwrap().holds(&fault())
    }

    #[test]
    fn conditions_that_hold() {
        for text in [
            "duration == 2000",
            "duration > 1000 && cpu == 1",
            "duration >= 2us&&duration<=2us",
            "address >= 0x7f0000000000",
            "kind == copy",
            "kind=copy",
            "reason != none",
            "thread ~ 'work*'",
            "thread == \"worker\"",
            "event ~ f*",
            "event == faults || nothing_else == 1 && cpu == 7"
                .split(" ||")
                .next()
                .unwrap(),
            "!(cpu == 0)",
            "!!cpu == 1",
            "cpu == 0 || cpu == 1 && tid == 105",
            "(cpu == 1 || cpu == 2) && pid == 100",
            "error == 0 || table == 0",
            "event == 'pagefault:spf_pte_lock' || start < 1ms",
        ] {
            assert!(holds(text), "{text}");
        }
    }

    #[test]
    fn conditions_that_do_not() {
        for text in [
            "duration < 2000",
            "kind == reuse",
            "cpu == 0 && cpu == 1 || cpu == 2",
            // A fault has no such field, so every comparison with it is false.
            "length == 0",
            "length != 0",
            "!kind ~ c*",
            "thread == work",
        ] {
            assert!(!holds(text), "{text}");
        }
    }

    #[test]
    fn both_bind_closer_than_either() {
        // (true && false) || true
        assert!(holds("cpu == 1 && cpu == 2 || cpu == 1"));
        assert!(!holds("cpu == 1 && (cpu == 2 || cpu == 3)"));
    }

    #[test]
    fn a_thread_that_is_not_known_has_no_number() {
        let mut seen = fault();
        seen.thread = None;
        assert!(!Filter::parse("tid >= 0").unwrap().holds(&seen));
    }

    #[test]
    fn whatever_is_wrong_is_said() {
        for (text, part) in [
            ("", "empty"),
            ("   ", "empty"),
            ("duration", "no comparison"),
            ("duration >", "with nothing"),
            ("duration > copy", "is a number"),
            ("duration > -1", "is a number"),
            ("duration > 0x", "is a number"),
            ("duration > 0x+1", "is a number"),
            ("duration > 99999999999999999999", "is a number"),
            ("duration > 18446744073709551615s", "is a number"),
            ("duration ~ 1", "is for words"),
            ("duration > '1'", "is a number"),
            ("nonsense == 1", "(there are: event, kind, reason"),
            ("kind == kopy", "it is one of"),
            ("event == fault", "it is one of: faults"),
            ("kind < copy", "is a word"),
            ("(cpu == 1", "not closed"),
            ("cpu == 1)", "should end"),
            ("cpu == 1 cpu == 2", "should end"),
            ("cpu == 1 &&", "where a field should be"),
            ("&& cpu == 1", "where a field should be"),
            ("cpu == 1 & cpu == 2", "means nothing"),
            ("thread == 'x", "without its end"),
            ("'cpu' == 1", "where a field should be"),
        ] {
            let error = Filter::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains('\n'), "{text}: {error}");
        }
        assert!(Filter::parse(&"(".repeat(100_000)).is_err());
        assert!(Filter::parse(&"!".repeat(100_000)).is_err());
    }

    #[test]
    fn events_that_are_no_faults() {
        let seen = Seen {
            event: Event::slice(Kind::Munmap, 0, 9, 0x1000, 8192).with(0, 22),
            ..fault()
        };
        assert!(
            Filter::parse("error == 22 && length == 0x2000")
                .unwrap()
                .holds(&seen)
        );
        assert!(!Filter::parse("kind == copy").unwrap().holds(&seen));
    }
}
