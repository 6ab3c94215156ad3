//! Numbers in C notation.

/// Parses a number between `low` and `high`: decimal, hexadecimal (`0x10`) or octal (`010`), with
/// one of the suffixes K, M, G if `suffix`. `None` for anything else.
pub fn parse_number(text: &str, suffix: bool, low: u64, high: u64) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' | b'K' if suffix => (&text[..text.len() - 1], 10),
        b'm' | b'M' if suffix => (&text[..text.len() - 1], 20),
        b'g' | b'G' if suffix => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    // Otherwise a sign would be accepted.
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let number = u64::from_str_radix(digits, radix).ok()?;
    let number = number.checked_mul(1 << shift)?;
    (low..=high).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::parse_number;

    #[test]
    fn reads_what_c_reads() {
        let read = |text| parse_number(text, true, 0, u64::MAX);
        assert_eq!(read("42"), Some(42));
        assert_eq!(read("0"), Some(0));
        assert_eq!(read("0x1F"), Some(31));
        assert_eq!(read("017"), Some(15));
        assert_eq!(read("512K"), Some(512 << 10));
        assert_eq!(read("0x2g"), Some(2 << 30));
    }

    #[test]
    fn refuses_everything_else() {
        for text in [
            "", "K", "-1", "+1", " 1", "1 ", "1.5", "0x", "09", "1KK", "1T", "٣", "17G",
        ] {
            assert_eq!(parse_number(text, true, 1, 16 << 30), None, "{text:?}");
        }
        assert_eq!(parse_number("1K", false, 0, 5000), None);
        assert_eq!(
            parse_number("99999999999999999999", false, 0, u64::MAX),
            None
        );
        assert_eq!(parse_number("17179869184G", true, 0, u64::MAX), None);
    }
}
