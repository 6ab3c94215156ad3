//! Sizes of memory as users write them.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context as _, Error, Result, bail};

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// Mebibytes.
    pub const fn mebi(count: u64) -> Self {
        Size(count << 20)
    }
}

impl FromStr for Size {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (number, shift) = match text.char_indices().last() {
            Some((end, 'k' | 'K')) => (&text[..end], 10),
            Some((end, 'm' | 'M')) => (&text[..end], 20),
            Some((end, 'g' | 'G')) => (&text[..end], 30),
            _ => (text, 0),
        };
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            bail!("not a size: write bytes, or a number with K, M or G, such as 512M");
        }
        let count: u64 = number.parse().ok().context("too large")?;
        count.checked_mul(1 << shift).map(Size).context("too large")
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shift, unit) = match self.0.trailing_zeros() {
            30..64 => (30, "G"),
            20..30 => (20, "M"),
            10..20 => (10, "K"),
            _ => (0, ""),
        };
        write!(f, "{}{unit}", self.0 >> shift)
    }
}

#[cfg(test)]
mod tests {
    use super::Size;

    #[test]
    fn reads_what_users_write() {
        for (text, bytes) in [
            ("64M", 64 << 20),
            ("1G", 1 << 30),
            ("4096", 4096),
            ("8k", 8192),
        ] {
            assert_eq!(text.parse::<Size>().unwrap(), Size(bytes), "{text}");
        }
    }

    #[test]
    fn refuses_everything_else() {
        for text in [
            "",
            "M",
            "-1M",
            "+1",
            "1.5G",
            "64MB",
            "1T",
            "99999999999G",
            "٣M",
            "1 M",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn shows_the_largest_exact_unit() {
        assert_eq!(Size::mebi(1024).to_string(), "1G");
        assert_eq!(Size::mebi(96).to_string(), "96M");
        assert_eq!(Size(5000).to_string(), "5000");
        assert_eq!(Size(0).to_string(), "0");
    }
}
