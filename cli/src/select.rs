//! Selection by name: `faults,spf,'pagefault:*'`.
//!
//! A pattern is a name in which `*` stands for any text and `?` for any character. A pattern without a match is an
//! error that lists the names.

use anyhow::{Result, bail};

/// perf's names for some of our names.
const ALIASES: [(&str, &str); 5] = [
    ("page-faults", "faults"),
    ("speculative-faults", "spf"),
    ("major-faults", "pgmajfault"),
    ("context-switches", "context_switches"),
    ("cs", "context_switches"),
];

/// Returns the indices in `names` of the names that `patterns` choose, each once, in the order of the patterns.
///
/// `what` says what is named, for the error.
pub fn choose(patterns: &[String], names: &[&str], what: &str) -> Result<Vec<usize>> {
    let mut chosen = Vec::new();
    for pattern in patterns.iter().map(|pattern| pattern.trim()) {
        let alias = ALIASES.iter().find(|(alias, _)| *alias == pattern);
        let pattern = alias.map_or(pattern, |(_, name)| name);
        let before = chosen.len();
        let mut known = false;
        for (place, name) in names.iter().enumerate() {
            if fits(pattern, name) {
                known = true;
                if !chosen.contains(&place) {
                    chosen.push(place);
                }
            }
        }
        if !known {
            chosen.truncate(before);
            bail!(
                "there is no {what} '{pattern}' (there are: {})",
                names.join(", ")
            );
        }
    }
    Ok(chosen)
}

/// Whether `text` matches `pattern`.
pub fn fits(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Where to continue if the text after the last `*` does not match: the star takes one more character.
    let mut star = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == '?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    t = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::{choose, fits};

    const NAMES: [&str; 4] = [
        "faults",
        "spf",
        "pagefault:spf_pte_lock",
        "pagefault:spf_vma_changed",
    ];

    fn chosen(patterns: &[&str]) -> Vec<usize> {
        let patterns: Vec<_> = patterns.iter().map(|&p| p.to_owned()).collect();
        choose(&patterns, &NAMES, "event").unwrap()
    }

    #[test]
    fn wildcards() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a*c", "abcbc", true),
            ("a*c", "abcb", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*b*b*", "abab", true),
            ("*b*b*", "aba", false),
            ("ü?", "üx", true),
        ] {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn patterns_choose_in_their_order_and_each_once() {
        assert_eq!(chosen(&["spf", "*"]), [1, 0, 2, 3]);
        assert_eq!(chosen(&["pagefault:*"]), [2, 3]);
        assert_eq!(chosen(&["speculative-faults", "page-faults"]), [1, 0]);
        assert!(chosen(&[]).is_empty());
    }

    #[test]
    fn a_pattern_that_fits_nothing_is_refused_with_what_there_is() {
        for pattern in ["fault", "", "pagefault:x*"] {
            let error = choose(&[pattern.to_owned()], &NAMES, "event").unwrap_err();
            assert!(
                error.to_string().contains("pagefault:spf_pte_lock"),
                "{error}"
            );
        }
    }
}
