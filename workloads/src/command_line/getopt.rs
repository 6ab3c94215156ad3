//! `getopt_long`, as far as the workloads use it: clusters of letters, values in the same word or
//! the next, abbreviated long options, options and other words in any order.

use std::slice::Iter;
use std::str::Chars;

/// An option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A letter, and its value if it takes one.
    Letter(char, &'a str),
    /// A long option.
    Word(&'static str),
}

/// Parses options from left to right; an error is a message for the user.
pub struct Getopt<'a> {
    arguments: Iter<'a, String>,
    cluster: Chars<'a>,
    letters: &'static str,
    words: &'static [&'static str],
    operands: Vec<&'a str>,
}

impl<'a> Getopt<'a> {
    /// Starts parsing.
    pub fn new(
        arguments: &'a [String],
        letters: &'static str,
        words: &'static [&'static str],
    ) -> Self {
        Self {
            arguments: arguments.iter(),
            cluster: "".chars(),
            letters,
            words,
            operands: Vec::new(),
        }
    }

    /// The words that are neither options nor values, after all options have been parsed.
    pub fn operands(self) -> Vec<&'a str> {
        self.operands
    }

    fn letter(&mut self, letter: char) -> Result<Item<'a>, String> {
        let place = self.letters.find(letter).filter(|_| letter != ':');
        let place = place.ok_or_else(|| format!("unrecognized option: {letter}"))?;
        if !self.letters[place + letter.len_utf8()..].starts_with(':') {
            return Ok(Item::Letter(letter, ""));
        }
        let rest = std::mem::replace(&mut self.cluster, "".chars()).as_str();
        let value = if rest.is_empty() {
            self.arguments.next().map(String::as_str)
        } else {
            Some(rest)
        };
        let value = value.ok_or_else(|| format!("option requires an argument: {letter}"))?;
        Ok(Item::Letter(letter, value))
    }

    fn word(&self, word: &str) -> Result<Item<'a>, String> {
        let (name, value) = word
            .split_once('=')
            .map_or((word, None), |(n, v)| (n, Some(v)));
        let exact = self.words.iter().find(|known| **known == name);
        let mut similar = self.words.iter().filter(|known| known.starts_with(name));
        let known = match (exact, similar.next(), similar.next()) {
            (Some(known), ..) | (None, Some(known), None) => known,
            (None, Some(_), Some(_)) => return Err(format!("option is ambiguous: {name}")),
            (None, None, _) => return Err(format!("unrecognized option: {name}")),
        };
        if value.is_some() {
            return Err(format!("option does not take an argument: {name}"));
        }
        Ok(Item::Word(known))
    }
}

impl<'a> Iterator for Getopt<'a> {
    type Item = Result<Item<'a>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(letter) = self.cluster.next() {
                return Some(self.letter(letter));
            }
            let argument = self.arguments.next()?;
            if argument == "--" {
                self.operands
                    .extend(self.arguments.by_ref().map(String::as_str));
                return None;
            }
            if let Some(word) = argument.strip_prefix("--") {
                return Some(self.word(word));
            }
            match argument.strip_prefix('-') {
                Some(letters) if !letters.is_empty() => self.cluster = letters.chars(),
                _ => self.operands.push(argument),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Getopt, Item};

    fn read(arguments: &[&str]) -> (Vec<Result<String, String>>, Vec<String>) {
        let arguments: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
        let mut getopt = Getopt::new(&arguments, "Tn:z", &["true-random", "help", "hello"]);
        let show = |item| match item {
            Item::Letter(letter, value) => format!("{letter}{value}"),
            Item::Word(word) => format!("--{word}"),
        };
        let items = getopt.by_ref().map(|item| item.map(show)).collect();
        let operands = getopt.operands().into_iter().map(str::to_owned).collect();
        (items, operands)
    }

    #[test]
    fn reads_clusters_values_and_words_in_any_order() {
        let (items, operands) = read(&["-Tzn5", "a", "-n", "-7", "--true", "-", "--", "-T"]);
        let items: Result<Vec<_>, _> = items.into_iter().collect();
        assert_eq!(items.unwrap(), ["T", "z", "n5", "n-7", "--true-random"]);
        assert_eq!(operands, ["a", "-", "-T"]);
    }

    #[test]
    fn says_what_is_wrong() {
        let (items, _) = read(&["-:", "-xT", "--hel", "--nothing", "--help=1", "-é", "-n"]);
        let wrong: Vec<_> = items.into_iter().filter_map(Result::err).collect();
        assert_eq!(
            wrong,
            [
                "unrecognized option: :",
                "unrecognized option: x",
                "option is ambiguous: hel",
                "unrecognized option: nothing",
                "option does not take an argument: help",
                "unrecognized option: é",
                "option requires an argument: n",
            ]
        );
    }
}
