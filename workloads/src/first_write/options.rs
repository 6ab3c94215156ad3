//! The options of first_write.

use crate::command_line::{Item, Syntax};
use crate::system::{Stop, Thread};

/// The parsed options.
pub struct Options {
    pub threads: u64,
    pub pages: u64,
    pub rounds: u64,
    pub disturbers: u64,
}

const SYNTAX: Syntax = Syntax {
    letters: "t:n:r:d:",
    words: &["help"],
    usage,
};

/// Reads the options.
pub fn read(thread: &Thread<'_>, arguments: &[String]) -> Result<Options, Stop> {
    let mut options = Options {
        threads: 8,
        pages: 1000,
        rounds: 10,
        disturbers: 0,
    };
    let mut items = SYNTAX.read(arguments);
    for item in items.by_ref() {
        let number = |value, range| SYNTAX.number(thread, value, false, range);
        match item.map_err(|why| SYNTAX.refuse(thread, why))? {
            // One word for each thread, in a page of 4 KiB.
            Item::Letter('t', n) => options.threads = number(('t', n), (1, 512))?,
            Item::Letter('n', n) => options.pages = number(('n', n), (1, i32::MAX as u64))?,
            Item::Letter('r', n) => options.rounds = number(('r', n), (1, 1 << 20))?,
            Item::Letter(letter, n) => options.disturbers = number((letter, n), (0, 512))?,
            Item::Word(_) => return Err(SYNTAX.help(thread)),
        }
    }
    SYNTAX.no_operands(thread, &items.operands())?;
    Ok(options)
}

fn usage(name: &str) -> String {
    format!(
        "Usage: {name} [options]\n\
         -t <num>\t Number of threads that write (8)\n\
         -n <num>\t Number of pages in a round (1000)\n\
         -r <num>\t Number of rounds (10)\n\
         -d <num>\t Number of threads that disturb the mapping (0)\n\
         --help\t\t Print this\n\
         Exits with 1 if a write was lost.\n\
         Example: {name} -t 4 -n 5000 -d 1\n"
    )
}
