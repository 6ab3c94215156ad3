//! The command `faultless`: runs programs on Faultless page tables and measures them.
//!
//! A command checks its whole input before it starts anything (`command/`), hands a request to a
//! machine (`machine/`), and reports (`report/`). `docs/json.md` describes the files it writes.
//!
//! It is normally started by `./x`, which first asks it what a command line needs; see `plan`.

#![forbid(unsafe_code)]

mod arch;
mod args;
mod bench;
mod command;
mod compare;
mod counters;
mod dynamic;
mod elf_check;
mod figure;
mod fuzz;
mod huge;
mod interrupt;
mod kvm;
mod latencies;
mod machine;
mod paths;
mod plan;
mod program;
mod refusal;
mod report;
mod select;
mod show;
mod size;
mod swap;
mod table;
mod trace;
mod tree;
mod verified;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Arguments, Command};

fn main() -> ExitCode {
    let result = match Arguments::try_parse() {
        Ok(Arguments {
            command: Command::Run(run),
        }) => command::run::command(&run),
        Ok(Arguments {
            command: Command::Stat(stat),
        }) => command::stat::command(&stat),
        Ok(Arguments {
            command: Command::Trace(trace),
        }) => command::trace::command(&trace),
        Ok(Arguments {
            command: Command::Bench(bench),
        }) => command::bench::command(&bench),
        Ok(Arguments {
            command: Command::Compare(compare),
        }) => command::compare::command(&compare),
        Ok(Arguments {
            command: Command::Fuzz(fuzz),
        }) => command::fuzz::command(&fuzz),
        Err(error) => return refusal::of_arguments(&error),
    };
    result.unwrap_or_else(|error| refusal::say(&error))
}
