//! The tool behind `./x`: set-up, builds and tests of Faultless.
//!
//! This tool decides nothing about programs or machines. It asks the command `faultless` what a
//! command line needs (so that bad input is refused before anything is installed), provides
//! exactly that, and executes `faultless`. It has no dependencies, so that the first
//! `./x` on a bare machine starts without a download.
//!
//! stdout belongs to the executed program; every line of this tool goes to stderr, except the results of
//! `./x test`.

#![forbid(unsafe_code)]

mod arch;
mod build;
mod hand_over;
mod help;
mod layout;
mod progress;
mod refusal;
mod setup;
mod test;

use std::process::ExitCode;

use layout::Layout;
use refusal::Refusal;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match dispatch(&arguments) {
        Ok(code) => code,
        Err(refusal) => {
            eprintln!("x: {refusal}");
            ExitCode::from(refusal::STATUS)
        }
    }
}

fn dispatch(arguments: &[std::ffi::OsString]) -> Result<ExitCode, Refusal> {
    let layout = Layout::find();
    let (command, rest) = match arguments.split_first() {
        Some((first, rest)) => (first.to_str().unwrap_or_default(), rest),
        None => ("help", arguments),
    };
    match command {
        "run" | "stat" | "trace" | "bench" | "compare" | "fuzz" => {
            hand_over::to_the_command(&layout, arguments)
        }
        "test" => test::command(&layout, rest),
        "setup" => setup::command(&layout, rest),
        "help" | "--help" | "-h" => help::command(&layout, rest),
        other => Err(Refusal::new(format!(
            "unknown command '{other}': ./x help lists the commands"
        ))),
    }
}
