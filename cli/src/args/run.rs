//! The arguments of `run`.

use clap::Args;

use super::{MachineArguments, ProgramArguments};
use crate::machine::Policy;
use crate::report::Destination;

const EXAMPLES: &str = "\
Exit status: that of the program, 128+n if signal n killed it, 125 if this command fails or refuses
(a time-out included), 130 if it is interrupted.

Examples:
  ./x run
  ./x run -- ebizzy -mTRp -S 5
  ./x run --policy classic --cpus 4 --memory 2G --json run.json -- page_fault1 -t 4
  ./x run --timeout 30 --list-unknown -- ./my-program
  ./x run -- sqlite3 :memory: 'select 1'
  ./x run --file words.txt -- /usr/bin/sort words.txt
  ./x run --file /bin/ls --env LC_ALL=C -- /bin/bash -c 'ls -l /usr | wc'
  ./x run --root ./tree -- /bin/sh -c 'ls -l / | wc -l'
  ./x run --icount -- page_fault1 -s 1 -m 250
  ./x run --arch aarch64 -- ebizzy -mTRp
  ./x run --machine soft -- ebizzy -mTRp";

const PROGRAM: &str = "\
A Linux program for x86-64 or AArch64, or the name of a packaged workload (ebizzy, page_fault1, guard, \
first_write) or of a program in PATH, and its arguments. Its interpreter and libraries come along, \
and it is where the host has it; a static one goes to /bin";

/// Run a program on Faultless page tables; without one, the demonstration: ebizzy under the three
/// fault policies, in one table.
///
/// The program reads this command's stdin, as far as it does read; its own output goes to stdout,
/// everything else to stderr.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, mut_arg("program", |arg| arg.help(PROGRAM)))]
pub struct RunArguments {
    /// Where it runs.
    #[command(flatten)]
    pub on: MachineArguments,

    /// How faults are resolved [default: speculative; the demonstration: all three]
    #[arg(long, value_enum)]
    pub policy: Option<Policy>,

    /// Write figures and counters to a file; '-' is stdout, the program's own stdout then goes to
    /// stderr
    #[arg(long, value_name = "FILE")]
    pub json: Option<Destination>,

    /// What is run.
    #[command(flatten)]
    pub program: ProgramArguments,
}
