//! The arguments of `stat`.

use clap::{Args, ValueEnum};

use super::{MachineArguments, ProgramArguments};
use crate::machine::Policy;
use crate::report::Destination;

const EXAMPLES: &str = "\
Exit status: that of the program (the first that is not 0, if it runs more than once), 128+n if
signal n killed it, 125 if this command fails or refuses, 130 if it is interrupted.

Examples:
  ./x stat -- ebizzy -mTRp -S 3
  ./x stat -e faults,spf,'pagefault:*' -- ./my-program
  ./x stat --policy all --cpus 4 -- page_fault1 -t 4
  ./x stat --machine soft --json stat.json -- ebizzy -mTRp
  ./x stat --list";

/// Run a program and show what was counted, and how long faults and mapping operations took.
///
/// The program's own output goes to stdout, everything else to stderr.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct StatArguments {
    /// Where it runs.
    #[command(flatten)]
    pub on: MachineArguments,

    /// Counters and latencies to show, by name, with wildcards; separated by commas, or repeated
    /// [default: those that are not 0]
    #[arg(short, long = "event", value_name = "EVENT", value_delimiter = ',')]
    pub events: Vec<String>,

    /// How faults are resolved; repeated, or 'all', for a column each [default: speculative]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub policy: Vec<PolicyChoice>,

    /// Write counters and latencies to a file, by default to stdout; the program's own stdout then
    /// goes to stderr
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<Destination>,

    /// List the counters and what is measured, and exit
    #[arg(long)]
    pub list: bool,

    /// What is run.
    #[command(flatten)]
    pub program: ProgramArguments,
}

/// A policy, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyChoice {
    /// Every fault takes the mmap lock for reading.
    Classic,
    /// A lock for reading on the mapping, as Linux does since 6.4.
    VmaLock,
    /// No lock.
    Speculative,
    /// One run under each.
    All,
}

impl PolicyChoice {
    /// The policies that a list of choices means, each once, in the order in which they are named.
    pub fn policies(choices: &[Self]) -> Vec<Policy> {
        let mut policies = Vec::new();
        for choice in choices {
            let meant: &[Policy] = match choice {
                PolicyChoice::Classic => &[Policy::Classic],
                PolicyChoice::VmaLock => &[Policy::VmaLock],
                PolicyChoice::Speculative => &[Policy::Speculative],
                PolicyChoice::All => &Policy::ALL,
            };
            for policy in meant {
                if !policies.contains(policy) {
                    policies.push(*policy);
                }
            }
        }
        if policies.is_empty() {
            policies.push(Policy::Speculative);
        }
        policies
    }
}
