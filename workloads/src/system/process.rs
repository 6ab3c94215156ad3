//! One program: its address space, its CPUs' slots, and its end.
//!
//! A process ends once, for the first reason given. From then on the next access, call or wait of
//! each of its threads returns [`Stop`], so that all of them return from their bodies.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use faultless_soft::{SoftCpu, SoftSpace};
use faultless_tdp::Options as GuestOptions;
use faultless_trace::Counter;

use crate::Options;

use super::bell::Bell;
use super::console::Message;
use super::image;
use super::slot::{Seat, Slot};
use super::thread::{Stop, Thread};

const SIGKILL: i32 = 9;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// By the caller's `stop`, or by a panic of ours.
    Stopped,
}

/// One program.
pub struct Process {
    name: &'static str,
    space: Arc<SoftSpace>,
    guests: GuestOptions,
    slots: Vec<Slot>,
    /// The bell on which threads sleep and wait for each other.
    pub(super) bell: Bell,
    console: SyncSender<Message>,
    end: OnceLock<(End, Instant)>,
    over: AtomicBool,
}

impl Process {
    /// A process on a machine, without threads yet.
    pub fn new(
        name: &'static str,
        space: SoftSpace,
        options: &Options<'_>,
        console: SyncSender<Message>,
    ) -> Self {
        Self {
            name,
            space: Arc::new(space),
            guests: options.guests,
            slots: (0..options.cpus).map(|_| Slot::new()).collect(),
            bell: Bell::default(),
            console,
            end: OnceLock::new(),
            over: AtomicBool::new(false),
        }
    }

    /// The program's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The machine's CPUs.
    pub fn cpus(&self) -> usize {
        self.slots.len()
    }

    /// The address space.
    pub(super) fn space(&self) -> &Arc<SoftSpace> {
        &self.space
    }

    /// How the memory of guests works.
    pub fn guests(&self) -> GuestOptions {
        self.guests
    }

    /// Page faults taken so far.
    pub fn faults(&self) -> u64 {
        self.space.memory().total(Counter::Faults)
    }

    /// Page faults that read from swap.
    pub fn major_faults(&self) -> u64 {
        self.space.memory().total(Counter::MajorFaults)
    }

    /// Runs the main thread on the calling host thread: maps the program's image, runs `main`,
    /// and ends the process with the status it returns.
    pub fn run_main(&self, main: impl FnOnce(&Thread<'_>) -> Result<i32, Stop>) {
        let _farewell = Farewell(self);
        self.run_thread(0, |thread| {
            if thread.call(image::map)?.is_err() {
                return Err(self.out_of_memory());
            }
            let status = main(thread)?;
            Err(self.end(End::Exit(status)))
        });
    }

    /// Runs a thread on the calling host thread.
    pub(super) fn run_thread(
        &self,
        number: usize,
        body: impl FnOnce(&Thread<'_>) -> Result<(), Stop>,
    ) {
        let cpu = number % self.slots.len();
        let _care = Care(self);
        let seat = Seat::take(&self.slots[cpu]);
        SoftCpu::run(&self.space, cpu as u32, |cpu| {
            // The cause of a stop has been reported already.
            let _ = body(&Thread::new(self, cpu, &seat));
        });
    }

    /// Ends the process, unless it has ended before.
    pub fn end(&self, end: End) -> Stop {
        self.end_with(end, String::new())
    }

    /// Ends the process with a message on stderr, unless it has ended before.
    pub fn end_with(&self, end: End, words: String) -> Stop {
        if self.end.set((end, Instant::now())).is_ok() && !words.is_empty() {
            // Fails only if there is no reader.
            let _ = self.console.send(Message::Err(words));
        }
        // SeqCst: a thread clears its slot's attention before it reads this flag.
        self.over.store(true, Ordering::SeqCst);
        self.slots.iter().for_each(Slot::call);
        self.bell.ring();
        Stop(())
    }

    /// Whether it has ended.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Kills the process, because there is no frame for a page.
    pub(super) fn out_of_memory(&self) -> Stop {
        let name = self.name;
        let words = format!("{name}: killed: the machine's memory is exhausted\n");
        self.end_with(End::Signal(SIGKILL), words)
    }

    /// Prints to stdout, unless the process has ended.
    pub fn print(&self, text: String) {
        if self.end.get().is_none() {
            // Fails only if there is no reader.
            let _ = self.console.send(Message::Out(text));
        }
    }

    /// How it ended, and the address space; called when no thread runs.
    pub fn into_parts(self) -> (Option<(End, Instant)>, Arc<SoftSpace>) {
        (self.end.into_inner(), self.space)
    }
}

/// Ends the process if its thread panics, so that no other thread waits for it.
struct Care<'p>(&'p Process);

impl Drop for Care<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end(End::Stopped);
        }
    }
}

/// Sends the last message when it is dropped.
struct Farewell<'p>(&'p Process);

impl Drop for Farewell<'_> {
    fn drop(&mut self) {
        let _ = self.0.console.send(Message::Ended);
    }
}
