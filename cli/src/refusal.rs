//! Reports a failure or a refusal: one line on stderr, and exit status 125.
//!
//! 125 tells "faultless failed or refused" from any status of the program it runs.

use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::show;

/// The exit status of a command that fails or refuses.
pub const STATUS: u8 = 125;

/// Says why the command failed, causes last.
pub fn say(error: &anyhow::Error) -> ExitCode {
    eprintln!("faultless: {error:#}");
    ExitCode::from(STATUS)
}

/// Answers a command line that clap does not accept, or that asks for help.
pub fn of_arguments(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => show::print(error),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            eprintln!(
                "faultless: a command is missing: run, stat, trace, bench, compare, or --help"
            );
            ExitCode::from(STATUS)
        }
        _ => {
            eprintln!("faultless: {}", one_line(&error.to_string()));
            ExitCode::from(STATUS)
        }
    }
}

/// The parts of clap's message that say what is wrong and what would be right.
fn one_line(message: &str) -> String {
    let said = message
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:"));
    let said = said.filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    let line = said.collect::<Vec<_>>().join(" ");
    line.trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn keeps_what_is_wrong_and_what_is_possible() {
        let message = "error: invalid value 'fast' for '--policy <P>'\n  \
                       [possible values: classic, vma-lock]\n\n\
                       For more information, try '--help'.\n";
        assert_eq!(
            one_line(message),
            "invalid value 'fast' for '--policy <P>' [possible values: classic, vma-lock]"
        );
    }
}
