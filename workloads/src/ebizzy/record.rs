//! The work of one record.

use std::cmp::Ordering;

use super::{RECORD, Shared, Worker, data};
use crate::system::{PAGE, Stop, Thread};

/// Allocates a copy, fills it, looks a key up in it, and frees it.
pub fn one(thread: &Thread<'_>, shared: &Shared, worker: &mut Worker) -> Result<(), Stop> {
    let o = &shared.options;
    let chunk = random_below(shared, worker, o.chunks);
    let from = data::chunk(thread, shared.chunks, chunk)?;
    let mut count = o.chunk_size / RECORD;
    if o.random_size {
        count = random_below(shared, worker, count) + 1;
    }
    let size = count * RECORD;
    let copy = shared.memory.allocate_copy(thread, o, worker, size)?;
    if o.touch_pages {
        touch(thread, copy, size)?;
    } else {
        copy_and_search(thread, shared, worker, (from, copy, count))?;
    }
    shared.memory.release(thread, copy, size)
}

/// A number in 0..max. Always 0 in the published form.
fn random_below(shared: &Shared, worker: &mut Worker, max: u64) -> u64 {
    if !shared.options.true_random {
        return 0;
    }
    let mut x = worker.random_state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    worker.random_state = x;
    x % max
}

fn touch(thread: &Thread<'_>, copy: u64, size: u64) -> Result<(), Stop> {
    (0..size)
        .step_by(PAGE as usize)
        .try_for_each(|i| thread.store_u8(copy + i, 1))
}

fn copy_and_search(
    thread: &Thread<'_>,
    shared: &Shared,
    worker: &mut Worker,
    (from, copy, count): (u64, u64, u64),
) -> Result<(), Stop> {
    let o = &shared.options;
    let size = count * RECORD;
    if o.own_memcpy {
        copy_bytes(thread, copy, from, size)?;
    } else {
        copy_pages(thread, copy, from, size)?;
    }
    let key = random_below(shared, worker, count);
    if o.verbose > 2 {
        let number = worker.number;
        thread.print(format!("[{number}] Search key {key}, copy size {size}\n"));
    }
    let search = if o.linear {
        search_linear
    } else {
        search_binary
    };
    if search(thread, copy, count, key)? {
        return Ok(());
    }
    Err(thread.die(format_args!(
        "memory corrupted: record {key} is not in its copy"
    )))
}

/// Copies like the C library: as many bytes at a time as the machine can.
fn copy_pages(thread: &Thread<'_>, to: u64, from: u64, size: u64) -> Result<(), Stop> {
    let mut page = [0; PAGE as usize];
    for at in (0..size).step_by(PAGE as usize) {
        let piece = &mut page[..(size - at).min(PAGE) as usize];
        thread.load_bytes(from + at, piece)?;
        thread.store_bytes(to + at, piece)?;
    }
    Ok(())
}

fn copy_bytes(thread: &Thread<'_>, to: u64, from: u64, size: u64) -> Result<(), Stop> {
    (0..size).try_for_each(|i| thread.store_u8(to + i, thread.load_u8(from + i)?))
}

fn search_linear(thread: &Thread<'_>, at: u64, count: u64, key: u64) -> Result<bool, Stop> {
    for i in 0..count {
        if thread.load(at + i * RECORD)? == key {
            return Ok(true);
        }
    }
    Ok(false)
}

fn search_binary(thread: &Thread<'_>, at: u64, count: u64, key: u64) -> Result<bool, Stop> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        match thread.load(at + middle * RECORD)?.cmp(&key) {
            Ordering::Equal => return Ok(true),
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
        }
    }
    Ok(false)
}
