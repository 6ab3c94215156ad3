//! dirty_log_perf_test: how long a guest takes to write its memory while that is logged, and how long the log takes. The twin of
//! Linux's `tools/testing/selftests/kvm/dirty_log_perf_test.c`.
//!
//! The vCPUs write all pages once; logging is switched on; then, in each iteration, they write all pages, and the log is got and
//! cleared.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use faultless_tdp::SlotFlags;

use super::stress::{Common, Iterations, Random, Stress, Touch, USAGE, shown};
use crate::command_line::{Item, Syntax};
use crate::system::{Stop, Thread, Vm};

struct Options {
    common: Common,
    iterations: u32,
    /// Not `-g`: the log begins full, and is cleared by a call of its own.
    is_manual: bool,
    /// `-e`.
    runs_at_the_end: bool,
    touch: Touch,
    seed: u64,
    slots: u32,
}

const SYNTAX: Syntax = Syntax {
    letters: "ab:eghi:m:op:r:s:v:x:w:",
    words: &["help"],
    usage,
};

fn usage(name: &str) -> String {
    format!(
        "Usage: {name} [options]\n\n\
         \t-a\t\tTouch pages at random, not in order\n\
         \t-i iterations\tNumber of iterations, at least 2 (2)\n\
         \t-g\t\tGetting the log also clears it\n\
         \t-e\t\tRun the vCPUs while logging is switched off\n\
         \t-p offset\tGuest-physical address of the memory\n\
         \t-r seed\t\tSeed of random numbers (1)\n\
         \t-x memslots\tNumber of slots of the memory (1)\n\
         \t-w percentage\tHow many of 100 accesses are stores (100)\n\
         {USAGE}"
    )
}

fn read_options(thread: &Thread<'_>, arguments: &[String]) -> Result<Options, Stop> {
    let mut options = Options {
        common: Common::default(),
        iterations: 2,
        is_manual: true,
        runs_at_the_end: false,
        touch: Touch::WRITE,
        seed: 1,
        slots: 1,
    };
    let mut items = SYNTAX.read(arguments);
    for item in items.by_ref() {
        let item = item.map_err(|why| SYNTAX.refuse(thread, why))?;
        if options.common.take(&SYNTAX, thread, item)? {
            continue;
        }
        let number =
            |letter, text, low, high| SYNTAX.number(thread, (letter, text), false, (low, high));
        match item {
            Item::Letter('a', _) => options.touch.is_random = true,
            Item::Letter('e', _) => options.runs_at_the_end = true,
            Item::Letter('g', _) => options.is_manual = false,
            Item::Letter('i', text) => {
                options.iterations = number('i', text, 2, 1 << 20)? as u32;
            }
            Item::Letter('r', text) => options.seed = number('r', text, 1, u64::MAX)?,
            Item::Letter('w', text) => options.touch.write_percent = number('w', text, 0, 100)?,
            Item::Letter('x', text) => options.slots = number('x', text, 1, 500)? as u32,
            _ => return Err(SYNTAX.help(thread)),
        }
    }
    SYNTAX.no_operands(thread, &items.operands())?;
    Ok(options)
}

/// Runs the test.
pub fn main(thread: &Thread<'_>, arguments: &[String]) -> Result<i32, Stop> {
    let options = read_options(thread, arguments)?;
    thread.print(format!("Test iterations: {}\n", options.iterations));
    Vm::with(thread, |vm| {
        let stress = Stress::new(thread, vm, options.common, options.slots)?;
        run(&stress, &options)
    })?;
    Ok(0)
}

fn run(stress: &Stress<'_>, options: &Options) -> Result<(), Stop> {
    let thread = stress.thread;
    let iterations = Iterations::new(options.common.vcpus);
    let touch = Mutex::new(Touch::WRITE);
    let repeats = AtomicBool::new(false);
    thread.team(|team| {
        for vcpu in 0..options.common.vcpus {
            let (iterations, touch, repeats) = (&iterations, &touch, &repeats);
            let vm = stress.vm;
            let memory = stress.memory();
            let mut random = Random::new(options.seed + vcpu);
            let body = move |thread: &Thread<'_>| {
                let cpu = vm.vcpu(thread);
                iterations.follow(thread, |_| {
                    let how = *touch
                        .lock()
                        .unwrap_or_else(|poisoned| poisoned.into_inner());
                    loop {
                        memory.touch(&cpu, vcpu, how, &mut random)?;
                        if !repeats.load(Ordering::Relaxed) {
                            return Ok(());
                        }
                    }
                })
            };
            team.start(vcpu as usize, body)
                .map_err(|error| thread.die(error))?;
        }
        let set_touch = |how| {
            *touch
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner()) = how
        };
        measure(stress, options, &iterations, &set_touch, &repeats)?;
        iterations.finish(thread)
    })
}

fn measure(
    stress: &Stress<'_>,
    options: &Options,
    iterations: &Iterations,
    set_touch: &dyn Fn(Touch),
    repeats: &AtomicBool,
) -> Result<(), Stop> {
    let thread = stress.thread;
    let print = |what: &str, time| thread.print(format!("{what} time: {}\n", shown(time)));
    print("Populate memory", iterations.run(thread, || Ok(()))?);

    let mut logged = SlotFlags::LOG_DIRTY_PAGES;
    logged.set(SlotFlags::LOG_BEGINS_FULL, options.is_manual);
    print(
        "Enabling dirty logging",
        timed(|| stress.set_flags(logged))?,
    );
    thread.print("\n".to_owned());

    set_touch(options.touch);
    let mut logs: Vec<_> = stress.slots().map(|_| Vec::new()).collect();
    let (mut got, mut cleared) = (Duration::ZERO, Duration::ZERO);
    for number in 1..=options.iterations {
        let print = |what: &str, time| print(&format!("Iteration {number} {what}"), time);
        print("dirty memory", iterations.run(thread, || Ok(()))?);
        let time = timed(|| {
            let mut logs = stress.slots().zip(&mut logs);
            logs.try_for_each(|(slot, log)| {
                stress
                    .vm
                    .get_dirty_log(thread, slot, !options.is_manual, log)
            })
        })?;
        print("get dirty log", time);
        got += time;
        if options.is_manual {
            let time = timed(|| {
                stress.slots().zip(&logs).try_for_each(|(slot, log)| {
                    let pages = stress.slot_pages(slot);
                    stress.vm.clear_dirty_log(thread, slot, pages, log)
                })
            })?;
            print("clear dirty log", time);
            cleared += time;
        }
    }
    let mut disabling = Duration::ZERO;
    let mut disable = || {
        disabling = timed(|| stress.set_flags(SlotFlags::empty()))?;
        repeats.store(false, Ordering::Relaxed);
        Ok(())
    };
    match options.runs_at_the_end {
        true => {
            repeats.store(true, Ordering::Relaxed);
            iterations.run(thread, &mut disable)?;
        }
        false => disable()?,
    }
    print("Disabling dirty logging", disabling);
    let print = |what: &str, sum: Duration| {
        let (n, average) = (options.iterations, sum / options.iterations);
        thread.print(format!(
            "{what} dirty log over {n} iterations took {}. (Avg {}/iteration)\n",
            shown(sum),
            shown(average)
        ));
    };
    print("Get", got);
    if options.is_manual {
        print("Clear", cleared);
    }
    Ok(())
}

fn timed(work: impl FnOnce() -> Result<(), Stop>) -> Result<Duration, Stop> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}
