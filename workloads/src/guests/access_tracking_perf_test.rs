//! access_tracking_perf_test: how long a guest takes to use memory that was marked idle. The twin of Linux's
//! `tools/testing/selftests/kvm/access_tracking_perf_test.c`.
//!
//! Each vCPU's thread marks its own pages idle, one after the other, as through `/sys/kernel/mm/page_idle/bitmap`. A guest with
//! accessed bits notices nothing; without them (`--kvm=accessed_bits=N`), its next accesses fault, and take the fast path. With
//! `--clear-refs` the pages are made unused as by `/proc/PID/clear_refs`, which takes them out of the guest's tables, so that
//! they are mapped anew.

use std::sync::atomic::{AtomicU8, Ordering};

use faultless_mm::AgingMode;

use super::stress::{Common, Iterations, Memory, Random, Stress, Touch, USAGE, shown};
use crate::command_line::{Item, Syntax};
use crate::system::{PAGE, Stop, Thread, Vm};

const SYNTAX: Syntax = Syntax {
    letters: "hm:b:v:os:",
    words: &["help", "clear-refs"],
    usage,
};

fn usage(name: &str) -> String {
    format!(
        "Usage: {name} [options]\n\n\
         {USAGE}\
         \t--clear-refs\tMark memory idle as a write to /proc/PID/clear_refs does\n"
    )
}

/// What the vCPUs' threads do in an iteration.
#[derive(Clone, Copy)]
enum Work {
    Write = 0,
    Read = 1,
    MarkIdle = 2,
}

/// Runs the test.
pub fn main(thread: &Thread<'_>, arguments: &[String]) -> Result<i32, Stop> {
    let (mut common, mut clears_refs) = (Common::default(), false);
    let mut items = SYNTAX.read(arguments);
    for item in items.by_ref() {
        let item = item.map_err(|why| SYNTAX.refuse(thread, why))?;
        if common.take(&SYNTAX, thread, item)? {
            continue;
        }
        match item {
            Item::Word("clear-refs") => clears_refs = true,
            _ => return Err(SYNTAX.help(thread)),
        }
    }
    SYNTAX.no_operands(thread, &items.operands())?;
    Vm::with(thread, |vm| {
        let stress = Stress::new(thread, vm, common, 1)?;
        run(&stress, clears_refs)
    })?;
    Ok(0)
}

fn run(stress: &Stress<'_>, clears_refs: bool) -> Result<(), Stop> {
    let thread = stress.thread;
    let iterations = Iterations::new(stress.options().vcpus);
    let work = AtomicU8::new(Work::Write as u8);
    thread.team(|team| {
        for vcpu in 0..stress.options().vcpus {
            let (iterations, work, memory, vm) = (&iterations, &work, stress.memory(), stress.vm);
            let body = move |thread: &Thread<'_>| {
                let (cpu, mut random) = (vm.vcpu(thread), Random::new(1));
                iterations.follow(thread, |_| match work.load(Ordering::Relaxed) {
                    0 => memory.touch(&cpu, vcpu, Touch::WRITE, &mut random),
                    1 => memory.touch(&cpu, vcpu, Touch::READ, &mut random),
                    _ if memory.options.overlaps && vcpu > 0 => Ok(()),
                    _ if clears_refs && vcpu > 0 => Ok(()),
                    _ if clears_refs => thread.call(|space| space.clear_accessed(AgingMode::All)),
                    _ => mark_idle(thread, memory, vcpu),
                })
            };
            team.start(vcpu as usize, body)
                .map_err(|error| thread.die(error))?;
        }
        let run = |what: Work, description: &str| {
            work.store(what as u8, Ordering::Relaxed);
            let time = iterations.run(thread, || Ok(()))?;
            thread.print(format!("{description:<30}: {}\n", shown(time)));
            Ok(())
        };
        thread.print("\n".to_owned());
        run(Work::Write, "Populating memory")?;
        run(Work::Write, "Writing to populated memory")?;
        run(Work::Read, "Reading from populated memory")?;
        run(Work::MarkIdle, "Mark memory idle")?;
        run(Work::Write, "Writing to idle memory")?;
        run(Work::MarkIdle, "Mark memory idle")?;
        run(Work::Read, "Reading from idle memory")?;
        iterations.finish(thread)
    })
}

/// Marks a vCPU's pages idle, one after the other.
fn mark_idle(thread: &Thread<'_>, memory: Memory, vcpu: u64) -> Result<(), Stop> {
    let (first, pages) = memory.pages_of(vcpu);
    let (mut absent, mut still_idle) = (0, 0);
    for page in first..first + pages {
        thread.call(|space| {
            let Some(frame) = space.translate(memory.host + page * PAGE) else {
                absent += 1;
                return;
            };
            match space.memory().is_idle(frame) {
                true => still_idle += 1,
                false => space.memory().set_idle(frame),
            }
        })?;
    }
    if absent > 0 && absent >= pages / 100 {
        let why = format!("vCPU {vcpu}: No PFN for {absent} out of {pages} pages.");
        return Err(thread.die(why));
    }
    if still_idle > 0 && still_idle >= pages / 10 {
        thread.print(format!(
            "WARNING: vCPU{vcpu}: Too many pages still idle ({still_idle} out of {pages}), \
             this will affect performance results.\n"
        ));
    }
    Ok(())
}
