//! Splits a condition into words and signs. A word may be in quotes.

use anyhow::{Result, bail, ensure};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// An operator or a parenthesis.
    Sign(&'static str),
    Word(String),
    /// A word in quotes is never a number.
    Quoted(String),
}

impl Token {
    /// As it was written, without quotes.
    pub fn text(&self) -> &str {
        match self {
            Token::Sign(sign) => sign,
            Token::Word(text) | Token::Quoted(text) => text,
        }
    }
}

/// A sign comes after all longer ones that begin with it.
const SIGNS: [&str; 13] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "~", "!", "(", ")", "=",
];

/// Splits a condition into tokens.
pub fn tokens(text: &str) -> Result<Vec<Token>> {
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
