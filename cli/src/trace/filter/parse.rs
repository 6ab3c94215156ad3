//! Parses the text of a condition.
//!
//! ```text
//! either     = both { "||" both }
//! both       = one { "&&" one }
//! one        = "!" one | "(" either ")" | FIELD compare VALUE
//! compare    = "==" | "!=" | "<" | "<=" | ">" | ">=" | "~"
//! ```
//!
//! Numbers are hexadecimal (`0x`) or decimal; a decimal number may have a unit of time: `ns`, `us`, `ms`, `s`.

use anyhow::{Result, bail, ensure};
use faultless_trace::{How, Kind, Reason};

use super::token::{Token, tokens};
use super::{Compare, Field, Filter};

/// How deep parentheses and negations may nest.
const DEEPEST: u32 = 64;

/// Reads a condition.
pub fn condition(text: &str) -> Result<Filter> {
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
