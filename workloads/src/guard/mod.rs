//! guard: tests memory protection against Linux's documentation. The twin of `workloads/c/guard.c`.
//!
//! Guard pages, changes of protection, unmapping, stack growth, the signal's contents, bad pointers
//! passed to the kernel, and races of all this with accesses by another thread. Each check prints
//! a line; the program exits with 1 if any failed.
//!
//! This file is the list of checks; they are in one file for each group. The crate's front page lists
//! the checks of the C program that are missing here, with the reasons.

mod check;
mod faults;
mod handlers;
mod kernel_access;
mod mappings;
mod pages;
mod races;
mod stacks;

use crate::command_line::{Item, Syntax, parse_number};
use crate::system::{Stop, Thread};
use check::{Check, Run};

use Run::{Once, Rounds};

const CHECKS: &[Check] = &[
    Check("a PROT_NONE page", Once(faults::prot_none)),
    Check(
        "a guard page between two pages",
        Once(faults::guard_between),
    ),
    Check("the null pointer", Once(faults::null)),
    Check("an unmapped page", Once(faults::unmapped)),
    Check("a read-only page", Once(faults::read_only)),
    Check(
        "a page that is not executable",
        Once(faults::not_executable),
    ),
    Check("a page made executable", Once(faults::executable)),
    Check(
        "the program's text, constants and data",
        Once(faults::program_image),
    ),
    Check(
        "addresses of the kernel and none at all",
        Once(faults::kernel_half),
    ),
    Check("PROT_NONE and back", Once(mappings::none_and_back)),
    Check("protection of parts of a mapping", Once(mappings::parts)),
    Check("mprotect over a hole", Once(mappings::protect_hole)),
    Check("MAP_FIXED over a mapping", Once(mappings::fixed_over)),
    Check("MADV_DONTNEED", Once(mappings::dontneed)),
    Check("MAP_POPULATE", Once(mappings::populate)),
    Check(
        "MADV_POPULATE_READ and _WRITE",
        Once(mappings::madvise_populate),
    ),
    Check("brk up and down", Once(mappings::brk)),
    Check("errors of bad arguments", Once(mappings::errors)),
    Check("/proc/self/maps", Once(mappings::maps)),
    Check("a handler that repairs and returns", Once(handlers::repair)),
    Check(
        "a fault in a second thread",
        Once(handlers::faulting_thread),
    ),
    Check(
        "stack touched below the stack pointer",
        Once(stacks::below_stack_pointer),
    ),
    Check(
        "stack grown by a kernel access",
        Once(stacks::kernel_grows_stack),
    ),
    Check("stack grown by recursion", Once(stacks::deep_recursion)),
    Check("the stack's limit", Once(stacks::stack_limit)),
    Check(
        "a thread's stack overflow",
        Once(stacks::thread_stack_overflow),
    ),
    Check("MAP_GROWSDOWN and its guard gap", Once(stacks::grows_down)),
    Check(
        "EFAULT where the kernel writes",
        Once(kernel_access::kernel_writes),
    ),
    Check(
        "EFAULT where the kernel reads",
        Once(kernel_access::kernel_reads),
    ),
    Check("EFAULT of write(2)", Once(kernel_access::write_from_bad)),
    Check("EFAULT of read(2)", Once(kernel_access::read_into_bad)),
    Check(
        "first touch by the kernel",
        Once(kernel_access::kernel_first_touch),
    ),
    Check("race: writes against mprotect", Rounds(races::protects)),
    Check(
        "race: writes against mprotect, handler flips back",
        Rounds(races::flip_back),
    ),
    Check("race: reads against munmap", Rounds(races::unmaps)),
    Check(
        "race: writes against MADV_DONTNEED",
        Rounds(races::dontneed),
    ),
    Check(
        "race: reads against MAP_FIXED over",
        Rounds(races::fixed_over),
    ),
    Check(
        "race: faults against changes beside them",
        Rounds(races::neighbours),
    ),
];

const SYNTAX: Syntax = Syntax {
    letters: "lr:",
    words: &["help"],
    usage,
};

/// Runs the program.
pub fn main(thread: &Thread<'_>, arguments: &[String]) -> Result<i32, Stop> {
    let (mut list, mut rounds) = (false, 200);
    let mut items = SYNTAX.read(arguments);
    for item in items.by_ref() {
        match item.map_err(|why| SYNTAX.refuse(thread, why))? {
            Item::Letter('l', _) => list = true,
            Item::Letter(_, text) => {
                let number = parse_number(text, false, 1, i32::MAX as u64);
                let why = format_args!("-r: not a number of rounds: {text}");
                rounds = number.ok_or_else(|| thread.die(why))?;
            }
            Item::Word(_) => return Err(SYNTAX.help(thread)),
        }
    }
    let words = items.operands();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
    let checks = CHECKS.iter().filter(|Check(name, _)| wanted(name));
    if list {
        checks.for_each(|Check(name, _)| thread.print(format!("{name}\n")));
        return Ok(0);
    }
    let (mut passed, mut failed) = (0, 0);
    for check in checks {
        let count = if check.run(thread, rounds)? {
            &mut passed
        } else {
            &mut failed
        };
        *count += 1;
    }
    if passed + failed == 0 {
        return Err(thread.die("no check has such a name; -l lists them"));
    }
    thread.print(format!("{passed} passed, {failed} failed\n"));
    Ok(i32::from(failed != 0))
}

fn usage(name: &str) -> String {
    format!(
        "Usage: {name} [options] [word...]\n\
         Runs the checks with a name that contains one of the words, or all.\n\
         -l\t\t List the checks, run none\n\
         -r <num>\t Rounds of each race (200)\n\
         --help\t\t Print this\n\
         Exits with 1 if a check failed.\n\
         Example: {name} -r 1000 race\n"
    )
}
