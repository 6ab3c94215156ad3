//! Conditions on events: `duration > 10us && (cpu == 1 || kind == copy)`.
//!
//! ```text
//! either     = both { "||" both }
//! both       = one { "&&" one }
//! one        = "!" one | "(" either ")" | FIELD compare VALUE
//! compare    = "==" | "!=" | "<" | "<=" | ">" | ">=" | "~"
//! ```
//!
//! Numbers are decimal or hexadecimal (`0x`), with `ns`, `us`, `ms`, `s` behind them where time is
//! meant. Words stand as they are or in quotes; `~` compares with wildcards. A comparison of a
//! field that an event does not have is false.

use std::cmp::Ordering;

use anyhow::{Result, bail, ensure};
use faultless_trace::{How, Kind, Reason};

use super::seen::{Field, Seen, Value};
use crate::select::fits;

/// How deep parentheses and negations may nest.
const DEEPEST: u32 = 64;

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
        let mut parser = Parser {
            tokens: tokens(text)?,
            at: 0,
            depth: 0,
        };
        ensure!(!parser.tokens.is_empty(), "the filter is empty");
        let filter = parser.either()?;
        match parser.next() {
            None => Ok(filter),
            Some(token) => bail!(
                "the filter goes on with '{}' where it should end",
                token.text()
            ),
        }
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

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// An operator or a parenthesis.
    Sign(&'static str),
    Word(String),
    /// A word in quotes is never a number.
    Quoted(String),
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Token::Sign(sign) => sign,
            Token::Word(text) | Token::Quoted(text) => text,
        }
    }
}

/// Longer ones first.
const SIGNS: [&str; 13] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "~", "!", "(", ")", "=",
];

fn tokens(text: &str) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            tokens.push(Token::Sign(if *sign == "=" { "==" } else { sign }));
            rest = &rest[sign.len()..];
        } else if first == '"' || first == '\'' {
            let Some(end) = rest[1..].find(first) else {
                bail!("the filter has a quote {first} without its end");
            };
            tokens.push(Token::Quoted(rest[1..=end].to_owned()));
            rest = &rest[end + 2..];
        } else {
            let ends = |c: char| c.is_whitespace() || "&|=!<>~()\"'".contains(c);
            let end = rest.find(ends).unwrap_or(rest.len());
            ensure!(
                end > 0,
                "the filter has '{first}', which means nothing here"
            );
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: u32,
}

impl Parser {
    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn takes(&mut self, sign: &'static str) -> bool {
        let found = self.tokens.get(self.at) == Some(&Token::Sign(sign));
        self.at += usize::from(found);
        found
    }

    fn either(&mut self) -> Result<Filter> {
        let mut filters = vec![self.both()?];
        while self.takes("||") {
            filters.push(self.both()?);
        }
        Ok(one_or(filters, Filter::Either))
    }

    fn both(&mut self) -> Result<Filter> {
        let mut filters = vec![self.one()?];
        while self.takes("&&") {
            filters.push(self.one()?);
        }
        Ok(one_or(filters, Filter::Both))
    }

    fn one(&mut self) -> Result<Filter> {
        self.depth += 1;
        ensure!(self.depth <= DEEPEST, "the filter nests too deep");
        let filter = if self.takes("!") {
            Filter::Not(Box::new(self.one()?))
        } else if self.takes("(") {
            let filter = self.either()?;
            ensure!(
                self.takes(")"),
                "the filter has a parenthesis that is not closed"
            );
            filter
        } else {
            self.comparison()?
        };
        self.depth -= 1;
        Ok(filter)
    }

    fn comparison(&mut self) -> Result<Filter> {
        let field = match self.next() {
            Some(Token::Word(name)) => field(&name)?,
            Some(token) => bail!("the filter has '{}' where a field should be", token.text()),
            None => bail!("the filter ends where a field should be"),
        };
        let name = field.name();
        let compare = match self.next() {
            Some(Token::Sign("==")) => Compare::Equal,
            Some(Token::Sign("!=")) => Compare::Different,
            Some(Token::Sign("<")) => Compare::Less,
            Some(Token::Sign("<=")) => Compare::AtMost,
            Some(Token::Sign(">")) => Compare::More,
            Some(Token::Sign(">=")) => Compare::AtLeast,
            Some(Token::Sign("~")) => Compare::Fits,
            _ => bail!("the filter has no comparison (== != < <= > >= ~) behind '{name}'"),
        };
        let value = match self.next() {
            Some(token @ (Token::Word(_) | Token::Quoted(_))) => token,
            _ => bail!("the filter compares '{name}' with nothing"),
        };
        if field.is_text() {
            let exact = matches!(compare, Compare::Equal | Compare::Different);
            ensure!(
                exact || compare == Compare::Fits,
                "'{name}' is a word: it compares by == != ~"
            );
            if exact {
                check_word(field, value.text())?;
            }
            return Ok(Filter::Text(field, compare, value.text().to_owned()));
        }
        ensure!(
            compare != Compare::Fits,
            "'{name}' is a number: ~ is for words"
        );
        match number(&value) {
            Some(number) => Ok(Filter::Number(field, compare, number)),
            None => bail!("'{name}' is a number, and '{}' is none", value.text()),
        }
    }
}

fn one_or(mut filters: Vec<Filter>, all: fn(Vec<Filter>) -> Filter) -> Filter {
    if filters.len() == 1 {
        filters.remove(0)
    } else {
        all(filters)
    }
}

fn field(name: &str) -> Result<Field> {
    match Field::ALL.iter().find(|field| field.name() == name) {
        Some(field) => Ok(*field),
        None => {
            let names: Vec<_> = Field::ALL.iter().map(|field| field.name()).collect();
            bail!(
                "events have no field '{name}' (there are: {})",
                names.join(", ")
            )
        }
    }
}

/// Refuses a word that the field never has: it is mistyped.
fn check_word(field: Field, word: &str) -> Result<()> {
    let words: Vec<&str> = match field {
        Field::Event => Kind::ALL.iter().map(|kind| kind.name()).collect(),
        Field::Kind => How::ALL.iter().map(|how| how.name()).collect(),
        Field::Reason => Reason::ALL.iter().map(|reason| reason.name()).collect(),
        _ => return Ok(()),
    };
    let name = field.name();
    ensure!(
        words.contains(&word),
        "'{name}' is never '{word}' (it is one of: {})",
        words.join(", ")
    );
    Ok(())
}

fn number(token: &Token) -> Option<u64> {
    let Token::Word(text) = token else {
        return None;
    };
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        // `from_str_radix` takes a sign.
        let hexadecimal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        return hexadecimal.then(|| u64::from_str_radix(digits, 16).ok())?;
    }
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let scale = match &text[end..] {
        "" | "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    text[..end].parse::<u64>().ok()?.checked_mul(scale)
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
            // No such field of a fault, whatever is asked of it.
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
