//! Times of this process on the host, as `getrusage` returns them.

use std::fs;

/// Ticks in a second of `/proc`'s clock: `USER_HZ`, which is part of Linux's interface.
const TICKS: f64 = 100.0;

/// Processor time, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// In user mode.
    pub user: f64,
    /// In the kernel.
    pub system: f64,
}

impl Times {
    /// The times used so far; 0 if the host does not provide them.
    pub fn now() -> Self {
        let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        parse(&text).unwrap_or_default()
    }
}

/// Parses `PID (NAME) STATE …`, where the name may contain any character; the times are fields 14 and 15.
fn parse(text: &str) -> Option<Times> {
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut seconds = || Some(fields.next()?.parse::<u64>().ok()? as f64 / TICKS);
    Some(Times {
        user: seconds()?,
        system: seconds()?,
    })
}

#[cfg(test)]
mod tests {
    use super::{Times, parse};

    #[test]
    fn reads_a_line_whose_name_has_spaces() {
        let text = "7 (a) b) R 1 7 7 0 -1 4194304 99 0 0 0 250 31 0 0 20 0 1 0 5 0 0";
        let times = Times {
            user: 2.5,
            system: 0.31,
        };
        assert_eq!(parse(text), Some(times));
        assert_eq!(parse("nothing"), None);
    }
}
