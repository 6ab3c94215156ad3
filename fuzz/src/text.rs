//! The text form of programs, for reading and writing.
//!
//! ```text
//! # Why this program is kept.
//! scene open
//! mmap @0 8p read|write private|anonymous|fixed -1 0
//! store @3+0x8 0x11
//! fork 1
//! 1.0 load @3+0x8
//! 0.1+ store @0 0x1
//! 0.2+ store @1 0x2
//! ```
//!
//! A line is an operation: its actor, `PROCESS.THREAD`, if that is not the first thread of the
//! first process, with a `+` if it runs side by side; its kind; its arguments in order.
//! Arguments at the end that are 0 may be missing.

use std::fmt;

use crate::KINDS;
use crate::address::{PAGE, Scene, Shown, number};
use crate::kind::{Kind, Meaning};
use crate::op::{Actor, Op};
use crate::program::Program;

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "scene {}", self.scene.name())?;
        for op in &self.ops {
            writeln!(f, "{op}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Actor { process, thread } = self.actor;
        let beside = if self.beside { "+" } else { "" };
        if self.actor != Actor::default() || self.beside {
            write!(f, "{process}.{thread}{beside} ")?;
        }
        let kind = self.kind();
        f.write_str(kind.name)?;
        for (argument, &value) in kind.arguments.iter().zip(&self.arguments) {
            f.write_str(" ")?;
            show(argument.meaning, value, f)?;
        }
        Ok(())
    }
}

fn show(meaning: Meaning, value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match meaning {
        Meaning::Address => write!(f, "{}", Shown(value)),
        Meaning::Length if value != 0 && value.is_multiple_of(PAGE) && value < 1 << 40 => {
            write!(f, "{}p", value / PAGE)
        }
        Meaning::Number | Meaning::File if value == u64::MAX => f.write_str("-1"),
        Meaning::Number | Meaning::File if value < 10 => write!(f, "{value}"),
        Meaning::Length | Meaning::Number | Meaning::File => write!(f, "{value:#x}"),
        Meaning::Choice(names) => match names.iter().find(|(_, choice)| *choice == value) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{value:#x}"),
        },
        Meaning::Bits(names) => {
            let mut rest = value;
            let mut is_first = true;
            for &(name, bits) in names {
                if rest & bits == bits {
                    let gap = if is_first { "" } else { "|" };
                    write!(f, "{gap}{name}")?;
                    rest &= !bits;
                    is_first = false;
                }
            }
            match (rest, is_first) {
                (0, false) => Ok(()),
                (0, true) => f.write_str("0"),
                (rest, true) => write!(f, "{rest:#x}"),
                (rest, false) => write!(f, "|{rest:#x}"),
            }
        }
    }
}

fn read(meaning: Meaning, text: &str) -> Option<u64> {
    let named = |names: &[(&str, u64)], text: &str| {
        let found = names.iter().find(|(name, _)| *name == text);
        found.map(|(_, value)| *value).or_else(|| number(text))
    };
    match meaning {
        Meaning::Address => Shown::parse(text),
        Meaning::Length => match text.strip_suffix('p') {
            Some(pages) => number(pages)?.checked_mul(PAGE),
            None => number(text),
        },
        Meaning::Number | Meaning::File if text == "-1" => Some(u64::MAX),
        Meaning::Number | Meaning::File => number(text),
        Meaning::Choice(names) => named(names, text),
        Meaning::Bits(names) => {
            let mut parts = text.split('|');
            parts.try_fold(0, |all, part| Some(all | named(names, part)?))
        }
    }
}

impl Op {
    /// Parses the output of `Display`.
    ///
    /// # Errors
    /// The error in the line.
    pub fn parse(line: &str) -> Result<Op, String> {
        let mut words = line.split_whitespace().peekable();
        let first = *words.peek().ok_or("an empty line")?;
        let mut op = Op {
            kind: 0,
            actor: Actor::default(),
            beside: first.ends_with('+'),
            arguments: [0; 6],
        };
        if let Some((process, thread)) = first.trim_end_matches('+').split_once('.') {
            let part = |text: &str| text.parse().map_err(|_| format!("{first} is no actor"));
            op.actor = Actor {
                process: part(process)?,
                thread: part(thread)?,
            };
            words.next();
        }
        let name = words.next().ok_or("no operation")?;
        op.kind = Kind::find(name).ok_or_else(|| format!("there is no operation {name}"))?;
        let known = KINDS[usize::from(op.kind)].arguments;
        for (place, word) in words.enumerate() {
            let argument = known
                .get(place)
                .ok_or_else(|| format!("too many: {word}"))?;
            op.arguments[place] = read(argument.meaning, word)
                .ok_or_else(|| format!("{word} is no {}", argument.name))?;
        }
        Ok(op)
    }
}

impl Program {
    /// Parses programs, each of which begins with its scene. Empty lines and the text behind `#` are
    /// ignored.
    ///
    /// # Errors
    /// The line that cannot be parsed, and why.
    pub fn parse_all(text: &str) -> Result<Vec<Program>, String> {
        let mut programs: Vec<Program> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let wrong = |why: &str| format!("line {}: {why}", number + 1);
            if line.is_empty() {
                continue;
            }
            if let Some(name) = line.strip_prefix("scene ") {
                let scene = Scene::ALL.iter().find(|scene| scene.name() == name.trim());
                let scene = *scene.ok_or_else(|| wrong("there is no such scene"))?;
                programs.push(Program {
                    scene,
                    ops: Vec::new(),
                });
                continue;
            }
            let program = programs.last_mut().ok_or_else(|| wrong("no scene yet"))?;
            program
                .ops
                .push(Op::parse(line).map_err(|why| wrong(&why))?);
        }
        for program in &mut programs {
            let length = program.ops.len();
            let scene = program.scene;
            let ops = std::mem::take(&mut program.ops);
            *program = Program { scene, ops }.normal();
            if program.ops.len() != length {
                return Err("an operation without a process, or too many operations".into());
            }
        }
        Ok(programs)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Op, Program, draw};

    #[test]
    fn what_is_written_is_read() {
        for number in 0..3000 {
            let program = draw::program(number);
            let text = program.to_string();
            assert_eq!(Program::parse_all(&text), Ok(vec![program]), "{text}");
        }
    }

    #[test]
    fn lines_say_what_is_wrong() {
        for (line, why) in [
            ("", "empty"),
            ("jump @0", "no operation jump"),
            ("load @0 1", "too many"),
            ("load @x", "no address"),
            ("x.0 load @0", "no actor"),
            ("0.0", "no operation"),
            ("mmap @0 1p read|fly", "no prot"),
        ] {
            let error = Op::parse(line).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
        let error = Program::parse_all("load @0\n").unwrap_err();
        assert!(
            error.contains("line 1") && error.contains("scene"),
            "{error}"
        );
        assert!(Program::parse_all("scene open\n1.0 load @0\n").is_err());
        assert!(Program::parse_all("scene nowhere\n").is_err());
    }

    #[test]
    fn people_can_read_it() {
        let op = Op::parse("0.1+ mmap @-2 3p read|write private|anonymous|fixed -1").unwrap();
        assert_eq!(
            op.to_string(),
            "0.1+ mmap @-2 3p read|write private|fixed|anonymous -1 0"
        );
    }
}
