//! `./x help`: an overview of the commands, without building anything.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::layout::Layout;
use crate::refusal::Refusal;
use crate::{hand_over, setup, test};

const TEXT: &str = "\
Faultless: page faults without the address-space lock.

Usage: ./x COMMAND [OPTIONS]

Commands:
  run     Run a program on Faultless page tables; without one, the demonstration
  stat    Run a program, and show what was counted and how long its faults took
  trace   Run a program, and write what happened when to a file for Perfetto
  bench   Measure; ./x bench --list names the figures
  compare Run a program in Faultless and in Linux, side by side, and compare what it costs
  fuzz    Look for differences from Linux, with random programs, for as long as you like
  test    Run the tests
  setup   Install and build everything that the other commands need
  help    Show this text, or that of a command: ./x help run

Each command installs and builds what it needs, and no more. Where everything is there already,
it asks for neither network nor root.

Exit status: that of the program (128+n for signal n); 125 when ./x itself fails or refuses.

Environment:
  FAULTLESS_TOOLCHAIN=rustup|debian  build the kernel with rustup's target for it (x86_64-unknown-none,
                                     aarch64-unknown-none-softfloat), or with Debian's compiler and
                                     rust-web-src; default: what is there
  FAULTLESS_NO_QEMU=1                behave as if QEMU could not be had

Examples:
  ./x run
  ./x run --policy classic --cpus 4 -- ebizzy -mTRp -S 5
  ./x stat --policy all -- page_fault1 -t 4
  ./x test --list
";

/// Prints the text of one command, or of `./x` itself.
pub fn command(layout: &Layout, arguments: &[OsString]) -> Result<ExitCode, Refusal> {
    let help = [OsString::from("--help")];
    match arguments.first().and_then(|name| name.to_str()) {
        Some("test") => test::command(layout, &help),
        Some("setup") => setup::command(layout, &help),
        Some(name @ ("run" | "stat" | "trace" | "bench" | "compare" | "fuzz")) => {
            hand_over::to_the_command(layout, &[name.into(), "--help".into()])
        }
        _ => {
            print!("{TEXT}");
            Ok(ExitCode::SUCCESS)
        }
    }
}
